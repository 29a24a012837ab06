/** One exported rlxweb plan on WebGPU, without Python. Works in a page and in a Worker. */

// --- what the plan takes and gives ---
/** Inputs by name, each flat with the last axis fastest. */
export interface Inputs {
  [name: string]: Samples;
}
/** Results by name, flat likewise, in arrays that belong to the caller. */
export interface Outputs {
  [name: string]: Results;
}
// --- end ---

/** f32, i32, u32, f16 as its bits, bool as 0 and not 0, i64 and u64 as BigInts. */
export type Samples = Float32Array | Int32Array | Uint32Array | Uint16Array | Uint8Array
  | BigInt64Array | BigUint64Array;
export type Results = Samples | Float64Array;
export type DType = "f32" | "i32" | "u32" | "f16" | "bool" | "f64" | "i64" | "u64";

/** Type and shape of one input or output; `[]` is a single value. */
export interface ArrayType {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** What went wrong, for programs:
 *
 *  "no-webgpu"      the browser has none, or the page is not secure (https or localhost)
 *  "no-adapter"     it has, and offers no GPU
 *  "limits"         the GPU offers less than the plan needs; both numbers are in the message
 *  "fetch"          a file is not there, cut off, or something else
 *  "plan"           plan.json is not one of this module, or WebGPU refuses what it says
 *  "shader"         the browser does not compile a shader; line and reason are in the message
 *  "out-of-memory"  the GPU has no memory left
 *  "input"          there is no input of that name
 *  "dtype"          an input is another type of array
 *  "shape"          an input has another number of values
 *  "not-finite"     a sample of Welch's method is NaN or infinite
 *  "range"          float32 cannot hold a power, and the samples have to be scaled; or a
 *                   number of 64 bits lies outside what the plan takes
 *  "index"          an index lies outside its table
 *  "device"         the browser or the driver failed; another run may be right
 *  "device-lost"    the GPU is gone; `load` again
 *  "closed"         `close` was called
 */
export type Code =
  | "no-webgpu" | "no-adapter" | "limits" | "fetch" | "plan" | "shader" | "out-of-memory"
  | "input" | "dtype" | "shape" | "not-finite" | "range" | "index" | "device" | "device-lost"
  | "closed";

export class RlxError extends Error {
  readonly name: "RlxError";
  readonly code: Code;
  constructor(code: Code, message: string, cause?: unknown);
}

/** What the browser tells of the GPU; "" for what it keeps to itself. */
export interface Adapter {
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  /** It runs on the CPU, as SwiftShader does. */
  readonly software: boolean;
}

/** How far the test vectors are off. */
export interface Check {
  /** Every value is within its tolerance, and there was one. */
  readonly ok: boolean;
  /** The value that is furthest off; `share` is its error over what is tolerated there. */
  readonly worst: {
    readonly case: number;
    readonly output: string;
    readonly index: number;
    readonly got: number;
    readonly want: number;
    readonly share: number;
  } | null;
  readonly compared: number;
  readonly cases: number;
  readonly ms: number;
}

/** A plan that is ready. Calls may be made at the same time: they take turns. */
export interface Run {
  /** Rejects with an RlxError: "input", "dtype", "shape", "not-finite", "range", "index",
   *  "device", "device-lost", "out-of-memory", "closed". */
  (inputs: Inputs): Promise<Outputs>;
  readonly inputs: { readonly [name in keyof Inputs]: ArrayType };
  readonly outputs: { readonly [name in keyof Outputs]: ArrayType };
  readonly adapter: Adapter;
  /** Resolves, with a "device-lost", when the GPU is lost; not for `close`. */
  readonly lost: Promise<RlxError>;
  /** Milliseconds from the call of `load` to the end of each of its parts. */
  readonly times: { readonly [part in "adapter" | "plan" | "device" | "pipelines" | "ready"]?: number };
  /** plan.json as it was read. */
  readonly plan: { readonly schema: string; readonly name: string; readonly rlxweb: string; readonly [part: string]: unknown };
  /** Runs the test vectors that were exported with the plan. */
  check(options?: { signal?: AbortSignal | null }): Promise<Check>;
  /** Frees everything on the GPU; what runs rejects with "closed". */
  close(): void;
}

/** What `load` may be told. */
export interface LoadOptions {
  /** A GPUDevice to use instead of one of its own. It stays yours: `close` frees what the
   *  plan made on it and leaves it open. */
  device?: object | null;
  /** Ends the loading; `load` rejects with its reason. */
  signal?: AbortSignal | null;
}

/** The plan.json at `url`, or that beside the module, ready to run; the files it names are
 *  fetched from beside it. Rejects with an RlxError: "no-webgpu", "no-adapter", "limits",
 *  "fetch", "plan", "shader", "out-of-memory", "device-lost". */
export function load(url?: string | URL, options?: LoadOptions): Promise<Run>;

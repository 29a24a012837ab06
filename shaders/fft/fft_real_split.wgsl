// Spectrum of an even real row from the transform Z of its packed half-length row:
// X[k] = (Z[k] + Z*[h-k]) / 2 - i w^k (Z[k] - Z*[h-k]) / 2, for k = 0 … h.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let bins = u.cells;
  let row = item / bins;
  let k = item % bins;
  let h = u.half;
  let base = row * 2u * h;
  let front = base + k % h;
  let back = base + (h - k) % h;
  let a = ld0(front);
  let b = ld0(front + h);
  let c = ld0(back);
  let d = ld0(back + h);
  let even_re = 0.5 * (a + c);
  let even_im = 0.5 * (b - d);
  let odd_re = 0.5 * (b + d);
  let odd_im = 0.5 * (c - a);
  let w_re = ld1(k);
  let w_im = ld1(bins + k);
  let to = row * 2u * bins + k;
  st2(to, even_re + w_re * odd_re - w_im * odd_im);
  st2(to + bins, even_im + w_re * odd_im + w_im * odd_re);
}

// Element types of the matmul shaders for u32; sums wrap.
alias T = u32;
alias V = vec4<u32>;

fn mul_add(a: V, b: V, c: V) -> V {
  return a * b + c;
}

// Element types of the matmul shaders for f32 (and f16 storage).
alias T = f32;
alias V = vec4<f32>;

fn mul_add(a: V, b: V, c: V) -> V {
  return fma(a, b, c);
}

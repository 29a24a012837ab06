// Element types of the matmul shaders for i32; sums wrap.
alias T = i32;
alias V = vec4<i32>;

fn mul_add(a: V, b: V, c: V) -> V {
  return a * b + c;
}

// needs: nan, exponential
// x * tanh(log(1 + exp(x))) = x * n / (n + 2) with n = exp(x) * (exp(x) + 2).
fn gated_mish(x: F) -> F {
  let a = clamp(x, F(-200.0), F(20.0));
  let e = precise_exp(a);
  let n = e * (e + F(2.0));
  return select(max(x, F(-200.0)) * (n / (n + F(2.0))), x, x > F(20.0));
}

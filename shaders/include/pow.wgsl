// needs: nan, two_to, logarithms
// x to the power y, for F of any width, with the edges of C's pow.
//
// |x|^y = 2^(y * (e + log2 m)) with x = m * 2^e and m in [sqrt(1/2), sqrt(2)). The product
// y * e is formed in two exact halves, so the error grows with |y| only: about
// (1 + |y|) * 1e-7 relative, where WGSL's own pow grows with |y * log2 x|.
// Of a positive, finite a.
fn magnitude_pow(a: F, power: F) -> F {
  // Beyond this a power of any a but 1 is 0 or infinity, and no product overflows.
  let y = clamp(power, F(-4.0e9), F(4.0e9));
  let s = split_of(a);
  let l = near_log(s.f) * F(1.44269504);
  // The upper 16 bits of y times an exponent of at most 8 bits is exact in 24.
  let y_high = bitcast<F>(bitcast<U>(y) & U(0xffff0000u));
  let whole = y_high * s.e;
  let part = (y - y_high) * s.e + y * l;
  let n = round(clamp(whole + part, F(-252.0), F(252.0)));
  let rest = clamp((whole - n) + part, F(-1.0), F(1.0));
  let half = I(n) >> U(1u);
  return exp2(rest) * two_to(half) * two_to(I(n) - half);
}

fn signed_pow(x: F, y: F) -> F {
  let size = bitcast<U>(x) & U(0x7fffffffu);
  let a = bitcast<F>(size);
  let none = size == U(0u);
  let endless = size == U(0x7f800000u);
  let up = y > F(0.0);
  let v = select(magnitude_pow(a, y), F(0.0), (none & up) | (endless & !up));
  let w = inf_where((none & !up) | (endless & up), v);
  let negative = (bitcast<U>(x) >> U(31u)) == U(1u);
  let odd = abs(y - F(2.0) * round(y * F(0.5))) == F(1.0);
  let signed = select(w, -w, negative & odd);
  let rootless = negative & !none & !endless & !not_finite(y) & (y != round(y));
  let all = keeps_nan(y, keeps_nan(x, nan_where(rootless, signed)));
  let told = select(all, x, y == F(1.0));
  return select(told, F(1.0), (y == F(0.0)) | (x == F(1.0)));
}

// needs: nan, atan
// The arc sine and cosine by a polynomial (our fit on [0, 1/2], 3e-10) and half-angle
// steps above, and the angle of a point, with C's edges.
fn short_asin(z: F) -> F {
  let s = z * z;
  var p = F(0.037578177) * s + F(0.014393789);
  p = p * s + F(0.031819823);
  p = p * s + F(0.04451547);
  p = p * s + F(0.07500512);
  p = p * s + F(0.1666666);
  return z + z * s * p;
}

// The arc cosine of 1/2 < a <= 1.
fn steep_acos(a: F) -> F {
  let half = F(0.5) * max(F(1.0) - a, F(0.0));
  return F(2.0) * select(short_asin(sqrt(half)), F(0.0), half == F(0.0));
}

fn precise_asin(x: F) -> F {
  let a = abs(x);
  let v = select(short_asin(min(a, F(0.5))), F(1.57079633) - steep_acos(a), a > F(0.5));
  return nan_where(a > F(1.0), select(v, -v, x < F(0.0)));
}

fn precise_acos(x: F) -> F {
  let a = abs(x);
  let steep = steep_acos(a);
  let outer = select(steep, F(3.14159265) - steep, x < F(0.0));
  let inner = F(1.57079633) - short_asin(clamp(x, F(-0.5), F(0.5)));
  return nan_where(a > F(1.0), select(inner, outer, a > F(0.5)));
}

// The angle of (x, y), by the signs of zeros too.
fn precise_atan2(y: F, x: F) -> F {
  let a = abs(x);
  let b = abs(y);
  let most = max(a, b);
  let endless = most > F(3.4028234e38);
  // A quotient of the largest numbers or the smallest is the driver's affair.
  let down = select(F(1.0), F(5.421010862427522e-20), most > F(1.0e19));
  let by = select(down, F(1.8446744073709552e19), most < F(1.0e-19));
  let low = select(min(a, b), F(0.0), endless) * by;
  let high = select(most, F(1.0), endless) * by;
  let part = select(low / max(high, F(1.0e-30)), F(1.0), endless & (a == b));
  let v = precise_atan(part);
  let w = select(v, F(1.57079633) - v, b > a);
  let left = (bitcast<U>(x) >> U(31u)) == U(1u);
  let u = select(w, F(3.14159265) - w, left);
  return select(u, -u, (bitcast<U>(y) >> U(31u)) == U(1u));
}

// sin, cos and tan with our own range reduction, for F of any width.
//
// WGSL promises 2^-11 on [-pi, pi] and nothing outside. Cody and Waite: x = n * pi/2 + r
// with pi/2 in three parts, the first two of 11 bits so that n times them is exact up to
// n = 2^13. Good to 2e-7 for |x| <= 1e4. Beyond that the angle is lost in f32 anyway;
// the clamps keep the result bounded.
struct Reduced { r: F, quadrant: I }

fn reduce_angle(x: F) -> Reduced {
  let n = round(clamp(x * F(0.63661977), F(-1.0e9), F(1.0e9)));
  var r = x - n * F(1.5703125);
  r = r - n * F(0.0004837513);
  r = r - n * F(7.5497901e-8);
  return Reduced(clamp(r, F(-0.8), F(0.8)), I(n));
}

fn short_sin(r: F) -> F {
  let s = r * r;
  var p = F(-0.00019582648) * s + F(0.0083327238);
  p = p * s + F(-0.16666664);
  return r + r * s * p;
}

fn short_cos(r: F) -> F {
  let s = r * r;
  var p = F(2.4542271e-5) * s + F(-0.0013888276);
  p = p * s + F(0.041666664);
  return F(1.0) - F(0.5) * s + s * s * p;
}

fn quadrant_sin(r: F, quadrant: I) -> F {
  let odd = (quadrant & I(1)) == I(1);
  let v = select(short_sin(r), short_cos(r), odd);
  return select(v, -v, (quadrant & I(2)) == I(2));
}

fn reduced_sin(x: F) -> F {
  let a = reduce_angle(x);
  return quadrant_sin(a.r, a.quadrant);
}

fn reduced_cos(x: F) -> F {
  let a = reduce_angle(x);
  return quadrant_sin(a.r, a.quadrant + I(1));
}

fn reduced_tan(x: F) -> F {
  let a = reduce_angle(x);
  let s = short_sin(a.r);
  let c = short_cos(a.r);
  let odd = (a.quadrant & I(1)) == I(1);
  return select(s, -c, odd) / select(c, s, odd);
}

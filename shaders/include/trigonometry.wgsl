// needs: nan
// sin, cos and tan with our own range reduction, for F of any width.
//
// WGSL promises 2^-11 on [-pi, pi] and nothing outside. Cody and Waite up to 1e4:
// x = n * pi/2 + r with pi/2 in three parts, the first two of 11 bits so that n times
// them is exact up to n = 2^13. Good to 2e-7. Beyond that Payne and Hanek, in integers.
struct Reduced { r: F, quadrant: I }

fn reduce_angle(x: F) -> Reduced {
  let n = round(clamp(x * F(0.63661977), F(-1.0e9), F(1.0e9)));
  var r = x - n * F(1.5703125);
  r = r - n * F(0.0004837513);
  r = r - n * F(7.5497901e-8);
  let near = Reduced(clamp(r, F(-0.8), F(0.8)), I(n));
  let far = abs(x) > F(1.0e4);
  if (!any(far)) { return near; }
  let other = reduce_far(x);
  return Reduced(select(near.r, other.r, far), select(near.quadrant, other.quadrant, far));
}

// The upper 32 bits of m * w, for m of 24 bits: in halves whose products fit.
fn upper(m: U, w: U) -> U {
  let m_high = m >> U(12u);
  let m_low = m & U(0xfffu);
  let w_high = w >> U(16u);
  let w_low = w & U(0xffffu);
  let a = m_low * w_low;
  let b = m_high * w_low;
  let c = m_high * w_high;
  let carry = ((a & U(0xffffu)) + ((b & U(15u)) << U(12u))) >> U(16u);
  let d = (a >> U(16u)) + m_low * w_high + (b >> U(4u)) + carry;
  return (d >> U(16u)) + (c >> U(4u)) + ((((c & U(15u)) << U(12u)) + (d & U(0xffffu))) >> U(16u));
}

// Word `at` of 2/pi behind 32 zero bits.
fn two_over_pi(at: U) -> U {
  var w = U(0u);
  w = select(w, U(0xa2f9836eu), at == U(1u));
  w = select(w, U(0x4e441529u), at == U(2u));
  w = select(w, U(0xfc2757d1u), at == U(3u));
  w = select(w, U(0xf534ddc0u), at == U(4u));
  w = select(w, U(0xdb629599u), at == U(5u));
  w = select(w, U(0x3c439041u), at == U(6u));
  return select(w, U(0xfe5163abu), at == U(7u));
}

// |x| = m * 2^(e - 23): of 2/pi only the bits from place e - 25 on matter, those before
// make whole turns. m times 96 of them is the angle in quarter turns with 62 bits behind
// the point; the last 32 bits are not needed.
fn reduce_far(x: F) -> Reduced {
  let bits = bitcast<U>(x);
  let m = (bits & U(0x7fffffu)) | U(0x800000u);
  let place = ((bits >> U(23u)) & U(0xffu)) - U(120u);
  let at = place >> U(5u);
  let by = place & U(31u);
  let p1 = two_over_pi(at + U(1u));
  let p2 = two_over_pi(at + U(2u));
  let w0 = (two_over_pi(at) << by) | ((p1 >> U(1u)) >> (U(31u) - by));
  let w1 = (p1 << by) | ((p2 >> U(1u)) >> (U(31u) - by));
  let w2 = (p2 << by) | ((two_over_pi(at + U(3u)) >> U(1u)) >> (U(31u) - by));
  let low = m * w1 + upper(m, w2);
  let high = m * w0 + upper(m, w1) + select(U(0u), U(1u), low < m * w1);
  let quadrant = I((high + U(0x20000000u)) >> U(30u));
  // What is left of the quarter turn, from -1/2 to 1/2: sign and magnitude.
  let up = (high << U(2u)) | (low >> U(30u));
  let down = low << U(2u);
  let below = (up >> U(31u)) == U(1u);
  let down_left = select(down, ~down + U(1u), below);
  let up_left = select(up, ~up + select(U(0u), U(1u), down == U(0u)), below);
  let turn = F(up_left) * F(2.3283064e-10) + F(down_left) * F(5.4210109e-20);
  let r = turn * F(1.57079633);
  let minus = x < F(0.0);
  return Reduced(select(r, -r, below != minus), select(quadrant, -quadrant, minus));
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
  return nan_where(not_finite(x), quadrant_sin(a.r, a.quadrant));
}

fn reduced_cos(x: F) -> F {
  let a = reduce_angle(x);
  return nan_where(not_finite(x), quadrant_sin(a.r, a.quadrant + I(1)));
}

fn reduced_tan(x: F) -> F {
  let a = reduce_angle(x);
  let s = short_sin(a.r);
  let c = short_cos(a.r);
  let odd = (a.quadrant & I(1)) == I(1);
  return nan_where(not_finite(x), select(s, -c, odd) / select(c, s, odd));
}

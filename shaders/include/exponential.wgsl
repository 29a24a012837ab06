// needs: nan, two_to
// exp, exp2 and exp(x) - 1 to a few units in the last place whatever x is, where WGSL
// promises 3 + 2 |x| of them: whole powers of two, and our own fit between them.
fn small_expm1(r: F) -> F {
  var p = F(0.00019914209) * r + F(0.0013941036);
  p = p * r + F(0.008333273);
  p = p * r + F(0.041666354);
  p = p * r + F(0.16666667);
  p = p * r + F(0.5);
  return r + r * r * p;
}

// 2^n * (1 + q): in two steps, neither of which overflows before the end.
fn scaled_power(q: F, n: I) -> F {
  let half = n >> U(1u);
  return (F(1.0) + q) * two_to(half) * two_to(n - half);
}

fn rest_of(a: F, n: F) -> F {
  return (a - n * F(0.693359375)) + n * F(0.00021219444);
}

fn precise_exp(x: F) -> F {
  let a = clamp(x, F(-110.0), F(89.0));
  let n = round(a * F(1.44269504));
  let v = scaled_power(small_expm1(rest_of(a, n)), I(n));
  return inf_where(x > F(88.722839), v);
}

fn precise_exp2(x: F) -> F {
  let a = clamp(x, F(-160.0), F(128.0));
  let n = round(a);
  let v = scaled_power(small_expm1((a - n) * F(0.69314718)), I(n));
  return inf_where(x >= F(128.0), v);
}

fn precise_expm1(x: F) -> F {
  let a = clamp(x, F(-20.0), F(89.0));
  let n = round(a * F(1.44269504));
  let t = two_to(I(n) - I(1));
  let q = small_expm1(rest_of(a, n));
  // Near 0 it is q itself: half of the smallest number is denormal.
  let v = select(F(2.0) * (t * q + (t - F(0.5))), q, n == F(0.0));
  return inf_where(x > F(88.722839), v);
}

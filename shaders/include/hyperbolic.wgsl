// needs: nan, exponential, logarithms
// sinh, cosh and their inverses with that of tanh. WGSL's own overflow in the middle of
// their range and lose all digits near 0.
fn signed_as(x: F, v: F) -> F {
  return select(v, -v, x < F(0.0));
}

// exp(a) / 2 of a >= 40, beyond where exp(a) itself overflows.
fn half_exp(a: F) -> F {
  let root = precise_exp(min(a, F(90.0)) * F(0.5));
  return inf_where(a > F(89.415985), (F(0.5) * root) * root);
}

fn precise_sinh(x: F) -> F {
  let a = abs(x);
  let q = precise_expm1(min(a, F(40.0)));
  let v = F(0.5) * (q + q / (q + F(1.0)));
  return signed_as(x, select(v, half_exp(a), a > F(40.0)));
}

fn precise_cosh(x: F) -> F {
  let a = abs(x);
  let e = precise_exp(min(a, F(40.0)));
  return select(F(0.5) * e + F(0.5) / e, half_exp(a), a > F(40.0));
}

// log(2 a) of a large a.
fn log_of_twice(a: F) -> F {
  return (precise_log2(a) + F(1.0)) * F(0.69314718);
}

fn precise_asinh(x: F) -> F {
  let a = abs(x);
  let b = min(a, F(1.0e4));
  let v = precise_log1p(b + b * b / (F(1.0) + sqrt(b * b + F(1.0))));
  return signed_as(x, select(v, log_of_twice(a), a > F(1.0e4)));
}

fn precise_acosh(x: F) -> F {
  let t = clamp(x, F(1.0), F(1.0e4)) - F(1.0);
  let v = select(precise_log1p(t + sqrt(t * (t + F(2.0)))), F(0.0), t == F(0.0));
  return nan_where(x < F(1.0), select(v, log_of_twice(x), x > F(1.0e4)));
}

fn precise_atanh(x: F) -> F {
  let a = min(abs(x), F(0.99999994));
  let v = F(0.5) * precise_log1p(F(2.0) * a / (F(1.0) - a));
  let w = inf_where(abs(x) == F(1.0), v);
  return nan_where(abs(x) > F(1.0), signed_as(x, w));
}

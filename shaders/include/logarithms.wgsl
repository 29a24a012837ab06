// needs: nan, near_log
// log2(x) and log(1 + x), each to a few units in the last place of its own value, where
// WGSL promises an absolute error near 1 alone.
struct Split { e: F, f: F }

// x = (1 + f) * 2^e of a positive x, a denormal one too.
fn split_of(x: F) -> Split {
  let small = x < F(1.17549435e-38);
  let bits = bitcast<U>(select(x, x * F(8388608.0), small));
  let e = I(bits - U(0x3f3504f3u)) >> U(23u);
  let f = bitcast<F>(bits - (U(e) << U(23u))) - F(1.0);
  return Split(F(e) - select(F(0.0), F(23.0), small), f);
}

// The edges of a logarithm: of `one` it is v, at 0 -infinity, below NaN.
fn log_edges(one: F, v: F) -> F {
  let w = inf_where(one > F(3.4028234e38), v);
  let none = bitcast<F>(select(bitcast<U>(w), U(0xff800000u), one == F(0.0)));
  return nan_where(one < F(0.0), none);
}

fn precise_log2(x: F) -> F {
  let s = split_of(clamp(x, F(0.0), F(3.4028234e38)));
  return log_edges(x, s.e + near_log(s.f) * F(1.44269504));
}

fn precise_log1p(x: F) -> F {
  let s = split_of(clamp(F(1.0) + x, F(1.0e-9), F(3.4028234e38)));
  let far = s.e * F(0.69314718) + near_log(s.f);
  let near = abs(x) < F(0.29);
  return log_edges(F(1.0) + x, select(far, near_log(select(F(0.0), x, near)), near));
}

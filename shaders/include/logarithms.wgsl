// needs: nan, near_log
// log(x), log2(x) and log(1 + x), each to a few units in the last place of its own value,
// where WGSL promises an absolute error near 1 alone and drivers differ on denormals.
struct Split { e: F, f: F }

// x = (1 + f) * 2^e of a positive x. A denormal one is the integer that its bits are, times
// 2^-149: no arithmetic on it, which may take it for 0.
fn split_of(x: F) -> Split {
  let whole = bitcast<U>(x);
  let small = whole < U(0x00800000u);
  let bits = select(whole, bitcast<U>(F(I(whole))), small);
  let e = I(bits - U(0x3f3504f3u)) >> U(23u);
  let f = bitcast<F>(bits - (U(e) << U(23u))) - F(1.0);
  return Split(F(e) - select(F(0.0), F(149.0), small), f);
}

// The edges of a logarithm of which v is the value, told by bits: of 0 it is -infinity, of
// infinity and NaN themselves, of less than 0 NaN.
fn log_edges(x: F, v: F) -> F {
  let bits = bitcast<U>(x);
  let size = bits & U(0x7fffffffu);
  let low = select(bitcast<U>(v), U(0xff800000u), size == U(0u));
  let whole = select(low, bits, size >= U(0x7f800000u));
  return nan_where(bits > U(0x80000000u), bitcast<F>(whole));
}

fn precise_log(x: F) -> F {
  let s = split_of(x);
  // log(2) in two parts: a whole number times the first is exact.
  let v = s.e * F(0.693359375) + (near_log(s.f) - s.e * F(0.00021219444));
  return log_edges(x, v);
}

fn precise_log2(x: F) -> F {
  let s = split_of(x);
  return log_edges(x, s.e + near_log(s.f) * F(1.44269504));
}

fn precise_log1p(x: F) -> F {
  let s = split_of(F(1.0) + x);
  let far = s.e * F(0.69314718) + near_log(s.f);
  let near = abs(x) < F(0.29);
  return log_edges(F(1.0) + x, select(far, near_log(select(F(0.0), x, near)), near));
}

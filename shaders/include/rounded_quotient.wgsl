// needs: nan, opaque
// x / y as IEEE rounds it, then to the nearest whole number. WGSL's own division may be
// 2.5 units of the last place off, which moves halves: what it leaves of x is found in
// products of halved mantissas, which are exact, and divided once more.
fn rounded_quotient(x: F, y: F) -> F {
  let less = select(F(1.0), F(5.4210109e-20), abs(y) > F(1.0e30));
  let up = select(less, F(18446744073709551616.0), abs(y) < F(5.4210109e-20));
  let a = opaque(x * up);
  let b = opaque(y * up);
  let q = opaque(a / b);
  let q_high = bitcast<F>(bitcast<U>(q) & U(0xfffff000u));
  let b_high = bitcast<F>(bitcast<U>(b) & U(0xfffff000u));
  let q_low = opaque(q - q_high);
  let b_low = opaque(b - b_high);
  let first = opaque(a - opaque(q_high * b_high));
  let second = opaque(first - opaque(q_high * b_low));
  let third = opaque(second - opaque(q_low * b_high));
  let left = opaque(third - opaque(q_low * b_low));
  let near = opaque(q + opaque(left / b));
  let v = round(select(q, near, (abs(q) < F(8388608.0)) & !not_finite(left)));
  let none = ((x == F(0.0)) & (y == F(0.0))) | (not_finite(x) & not_finite(y));
  return keeps_nan(y, keeps_nan(x, nan_where(none, v)));
}

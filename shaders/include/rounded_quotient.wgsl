// needs: nan, opaque
// a - q * b, exactly where q is a few units of the last place off a / b: in products of
// halved mantissas, which round nothing.
fn quotient_rest(a: F, b: F, q: F) -> F {
  let q_high = bitcast<F>(bitcast<U>(q) & U(0xfffff000u));
  let b_high = bitcast<F>(bitcast<U>(b) & U(0xfffff000u));
  let q_low = opaque(q - q_high);
  let b_low = opaque(b - b_high);
  let first = opaque(a - opaque(q_high * b_high));
  let second = opaque(first - opaque(q_high * b_low));
  let third = opaque(second - opaque(q_low * b_high));
  return opaque(third - opaque(q_low * b_low));
}

// x / y as IEEE rounds it, then to the nearest whole number. WGSL's own division may be
// 2.5 units of the last place off, which moves halves: what it leaves of x is divided
// once more, and of the number that makes and its neighbour the nearer one is taken: no
// quotient lies half way between two.
fn rounded_quotient(x: F, y: F) -> F {
  let less = select(F(1.0), F(5.4210109e-20), abs(y) > F(1.0e30));
  let up = select(less, F(18446744073709551616.0), abs(y) < F(5.4210109e-20));
  let a = opaque(x * up);
  let b = opaque(y * up);
  let q = opaque(a / b);
  let left = quotient_rest(a, b, q);
  let near = opaque(q + opaque(left / b));
  let rest = quotient_rest(a, b, near);
  let grows = ((rest > F(0.0)) == (b > F(0.0))) == (near > F(0.0));
  let beside = bitcast<F>(bitcast<U>(near) + select(U(0xffffffffu), U(1u), grows));
  let step = abs(opaque(beside - near));
  let right = select(near, beside, abs(rest) * F(2.0) > step * abs(b));
  let v = round(select(q, right, (abs(q) < F(8388608.0)) & !not_finite(left)));
  let none = ((x == F(0.0)) & (y == F(0.0))) | (not_finite(x) & not_finite(y));
  return keeps_nan(y, keeps_nan(x, nan_where(none, v)));
}

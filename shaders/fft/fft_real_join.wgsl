// The packed half-length spectrum whose inverse transform is an even real row:
// Z[k] = X[k] + X*[h-k] + i w^-k (X[k] - X*[h-k]); twice the usual, so that an unscaled
// inverse of length h gives n times the row. Imaginary ends (k = 0, h) count as 0.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let h = u.half;
  let bins = h + 1u;
  let row = item / h;
  let k = item % h;
  let base = row * 2u * bins;
  let a = ld0(base + k);
  let c = ld0(base + h - k);
  var b = 0.0;
  var d = 0.0;
  if (k != 0u) {
    b = ld0(base + bins + k);
    d = ld0(base + bins + h - k);
  }
  let even_re = a + c;
  let even_im = b - d;
  let diff_re = a - c;
  let diff_im = b + d;
  let w_re = ld1(k);
  let w_im = -ld1(bins + k);
  let odd_re = w_re * diff_re - w_im * diff_im;
  let odd_im = w_re * diff_im + w_im * diff_re;
  let to = row * 2u * h + k;
  st2(to, even_re - odd_im);
  st2(to + h, even_im + odd_re);
}

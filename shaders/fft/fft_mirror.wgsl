// The whole spectrum of an odd real row from its half: X[n-k] = X*[k], imaginary DC 0.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let n = u.n;
  let bins = n / 2u + 1u;
  let row = item / n;
  let k = item % n;
  let mirrored = k >= bins;
  let from_bin = row * 2u * bins + select(k, n - k, mirrored);
  var im = 0.0;
  if (k != 0u) { im = ld0(from_bin + bins); }
  let to = row * 2u * n + k;
  st1(to, ld0(from_bin));
  st1(to + n, select(im, -im, mirrored));
}

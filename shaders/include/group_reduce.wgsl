// The sum and the maximum of one value of each invocation of a workgroup, known to all.
// Every invocation must call them, the same number of times.
var<workgroup> partial: array<f32, 256>;

fn group_sum(lid: u32, v: f32) -> f32 {
  partial[lid] = v;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lid < half) { partial[lid] += partial[lid + half]; }
    workgroupBarrier();
  }
  let all = partial[0];
  workgroupBarrier();
  return all;
}

fn group_max(lid: u32, v: f32) -> f32 {
  partial[lid] = v;
  workgroupBarrier();
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    if (lid < half) { partial[lid] = max(partial[lid], partial[lid + half]); }
    workgroupBarrier();
  }
  let all = partial[0];
  workgroupBarrier();
  return all;
}

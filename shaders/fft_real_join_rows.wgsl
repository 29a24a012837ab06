// fft_real_join.wgsl for adapters on the CPU, as fft_real_split_rows.wgsl: a row to an
// invocation, values k and h - k together, four at a time. h is a multiple of eight.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let fours = u.half / 4u;
  let from_re = item * 2u * u.bins;
  let from_im = from_re + u.bins;
  let re = item * 2u * fours;
  let im = re + fours;
  var back_re = vec4<f32>();
  var back_im = vec4<f32>();
  for (var q = 0u; q < fours / 2u; q++) {
    let back = u.half - 4u * q - 3u;
    let a = four_at(from_re + 4u * q);
    let c = four_at(from_re + back).wzyx;
    var b = four_at(from_im + 4u * q);
    var d = four_at(from_im + back).wzyx;
    if (q == 0u) {
      b.x = 0.0;
      d.x = 0.0;
    }
    let w_re = ld1(q);
    let w_im = -ld1(u.stride + q);
    let even_re = a + c;
    let even_im = b - d;
    let diff_re = a - c;
    let diff_im = b + d;
    let odd_re = w_re * diff_re - w_im * diff_im;
    let odd_im = w_re * diff_im + w_im * diff_re;
    st2(re + q, even_re - odd_im);
    st2(im + q, even_im + odd_re);
    // Value h - 4q is the first of the four of which the turn before made the others.
    let mirrored_re = even_re + odd_im;
    let mirrored_im = odd_re - even_im;
    if (q > 0u) {
      st2(re + fours - q, vec4<f32>(mirrored_re.x, back_re.wzy));
      st2(im + fours - q, vec4<f32>(mirrored_im.x, back_im.wzy));
    }
    back_re = mirrored_re;
    back_im = mirrored_im;
  }
  let middle = vec2<f32>(ld0(from_re + u.half / 2u), -ld0(from_im + u.half / 2u));
  st2(re + fours / 2u, vec4<f32>(2.0 * middle.x, back_re.wzy));
  st2(im + fours / 2u, vec4<f32>(2.0 * middle.y, back_im.wzy));
}

fn four_at(at: u32) -> vec4<f32> {
  return vec4<f32>(ld0(at), ld0(at + 1u), ld0(at + 2u), ld0(at + 3u));
}

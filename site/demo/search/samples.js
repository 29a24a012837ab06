// What the page begins with: notes that anybody might have, and questions to them.

export const NOTES = `The tomatoes on the balcony want water every morning in July, and the blossom-end rot went away once I gave them crushed eggshells.

Call the landlord about the dripping tap in the bathroom. He said on the phone that the plumber comes on Tuesdays only.

Grandmother's apple cake: 4 eggs, 200 g butter, 200 g sugar, 300 g flour, a kilo of sour apples. 50 minutes at 175 degrees, and cover it for the last ten.

The night train to Vienna leaves at 22:10 from platform 7. Seats in the quiet carriage cost four euros more.

Doctor Weiss says the knee needs no operation. Swim twice a week, no running before October.

Physics lecture: energy is conserved because the laws do not change with time; momentum because they do not change from place to place.

Password rules at work have changed again, 16 characters, and the old one ends on the first of the month.

We saw two kingfishers at the old mill on Sunday, and a heron that did not mind us at all.

The new bass player is good but always late. Rehearsal moves to Thursday, bring the long cable and the spare strings.

The tax office wants the receipts of the last three years by the end of March. They are in the blue folder behind the printer.

Book that Anna recommended: a lighthouse keeper who writes letters to his dead brother. Sad, but not only.

The car makes a grinding noise when it brakes, louder when it is wet. The garage can look at it next week.`;

export const QUESTIONS = [
  "How long does it go in the oven?",
  "something is broken in the flat",
  "birds",
  "when may I go running again?",
  "when do we play music together",
  "why does nature obey conservation laws?",
];

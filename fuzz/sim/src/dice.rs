//! Where choices come from: a seed, or a list of them that is gone through to the end.

/// A source of choices.
pub trait Choose {
    /// A number below `sides`, which is at least 1.
    fn choose(&mut self, sides: u64) -> u64;
}

/// Numbers that look random and are the same every time (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The numbers that belong to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.any() % sides.max(1)
    }

    /// A number below one of `sides`: small where small ones are among them, and at times not.
    pub fn roll_below(&mut self, sides: &[u64]) -> u64 {
        let sides = sides[self.roll(sides.len() as u64) as usize];
        self.roll(sides)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

impl Choose for Dice {
    fn choose(&mut self, sides: u64) -> u64 {
        self.roll(sides)
    }
}

/// Goes through every combination of choices, one after the other, whatever number of them is asked for and however many
/// sides each has: the first run takes 0 everywhere, and [`Odometer::advance`] turns the last one that can be turned.
#[derive(Clone, Debug, Default)]
pub struct Odometer {
    /// What was chosen, of how many.
    taken: Vec<(u64, u64)>,
    at: usize,
}

impl Odometer {
    /// On to the next combination; false when there is none left.
    pub fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((taken, sides)) = self.taken.pop() {
            if taken + 1 < sides {
                self.taken.push((taken + 1, sides));
                return true;
            }
        }
        false
    }
}

impl Choose for Odometer {
    fn choose(&mut self, sides: u64) -> u64 {
        if self.at == self.taken.len() {
            self.taken.push((0, sides));
        }
        let (taken, of) = self.taken[self.at];
        assert_eq!(of, sides, "the same choices must be asked for in every run");
        self.at += 1;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odometer_goes_through_all_combinations() {
        let mut odometer = Odometer::default();
        let mut seen = Vec::new();
        loop {
            let first = odometer.choose(2);
            // The second question is asked in one case only.
            let second = if first == 1 { odometer.choose(3) } else { 9 };
            seen.push((first, second));
            if !odometer.advance() {
                break;
            }
        }
        assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn dice_repeat_themselves() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            (0..20).map(|_| dice.roll(6)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
    }
}

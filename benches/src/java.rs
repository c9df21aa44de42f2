//! `java.util.Random`, whose numbers are specified: the same log can be made here and by the yardstick.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

/// The numbers of `new Random(seed)`.
#[derive(Clone, Debug)]
pub(crate) struct JavaRandom(u64);

impl JavaRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed ^ MULTIPLIER) & MASK)
    }

    fn next(&mut self, bits: u32) -> i32 {
        self.0 = (self.0.wrapping_mul(MULTIPLIER).wrapping_add(0xB)) & MASK;
        (self.0 >> (48 - bits)) as u32 as i32
    }

    /// `nextInt(bound)`; `bound` is above 0.
    pub(crate) fn below(&mut self, bound: i32) -> i32 {
        let mut r = self.next(31);
        let m = bound - 1;
        if bound & m == 0 {
            return ((i64::from(bound) * i64::from(r)) >> 31) as i32;
        }
        loop {
            let rest = r % bound;
            if r.wrapping_sub(rest).wrapping_add(m) >= 0 {
                return rest;
            }
            r = self.next(31);
        }
    }

    /// `nextBytes(bytes)`.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for four in bytes.chunks_mut(4) {
            let word = self.next(32).to_le_bytes();
            four.copy_from_slice(&word[..four.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a real JVM prints.
    #[test]
    fn numbers_are_those_of_a_jvm() {
        let mut random = JavaRandom::new(1);
        let first: Vec<i32> = (0..5).map(|_| random.below(10)).collect();
        assert_eq!(first, [5, 8, 7, 3, 4]);
        assert_eq!(random.below(16), 0);
        let mut bytes = [0; 6];
        random.fill(&mut bytes);
        assert_eq!(bytes.map(u8::cast_signed), [-27, -15, 44, 85, -35, -123]);
        let large: Vec<i32> = (0..3).map(|_| random.below(2_000_000_000)).collect();
        assert_eq!(large, [1_526_301_748, 13_136_569, 327_998_473]);
    }
}

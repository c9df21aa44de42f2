//! Random lives: many logs, many crashes, faults mixed in.

use std::io::ErrorKind;

use crate::dice::Dice;
use crate::disk::{Fault, Survival};
use crate::features;
use crate::life::{End, Era, Life, Moment, Step};
use crate::world::Settings;

/// The life that belongs to a seed; `with_faults` or with a disk that never fails but by losing power.
#[must_use]
pub fn life(seed: u64, with_faults: bool) -> Life {
    let mut dice = Dice::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let settings = Settings::random(&mut dice);
    // Half of the lives have a disk that never fails but by losing power.
    let faults_in = if dice.one_in(2) || !with_faults { None } else { Some(12) };
    let eras = (0..3 + dice.roll(6)).map(|_| era(&mut dice, faults_in)).collect();
    Life { settings, eras }
}

fn era(dice: &mut Dice, faults_in: Option<u64>) -> Era {
    let steps: Vec<_> = (0..1 + dice.roll_below(&[3, 12, 30, 60]))
        .map(|_| Step {
            feature: features::any(dice, |_| true),
            seed: dice.any(),
            fault: if faults_in.is_some_and(|n| dice.one_in(n)) { fault(dice) } else { Fault::None },
        })
        .collect();
    // Most steps make few calls, and a long one is a rare one: so most of the numbers are small, and some are not.
    let call = dice.roll_below(&[3, 8, 40]);
    let moment = Moment { step: dice.roll(steps.len() as u64 + 1) as usize, call };
    let end = match dice.roll(10) {
        0 => End::Close,
        1 | 2 => End::Kill(moment),
        _ => End::PowerFailure {
            moment,
            survival: [Survival::Nothing, Survival::InOrder, Survival::AnyOrder][dice.roll(3) as usize],
            seed: dice.any(),
        },
    };
    Era { steps, end }
}

fn fault(dice: &mut Dice) -> Fault {
    let at = dice.roll_below(&[2, 6, 30]);
    match dice.roll(6) {
        0 | 1 => Fault::Once { at, kind: ErrorKind::Other },
        2 => Fault::Once { at, kind: ErrorKind::StorageFull },
        3 => Fault::Full { at },
        4 => Fault::Read { at },
        _ => Fault::Short,
    }
}

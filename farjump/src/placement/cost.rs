//! The time of a function by the amount of its data.

/// The time of a function in microseconds: a part for each call and a part for each unit of data. The program chooses
/// the unit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// Microseconds for a call without data.
    pub call_us: f64,
    /// Microseconds for a unit.
    pub unit_us: f64,
}

/// Calls that were measured together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Number of calls.
    pub calls: f64,
    /// The units of all of them.
    pub units: f64,
    /// Their time in microseconds.
    pub us: f64,
}

impl Cost {
    /// The time of a call in microseconds.
    #[inline]
    pub fn of(self, units: f64) -> f64 {
        self.call_us + units * self.unit_us
    }

    /// Returns the cost that fits these samples best, by least squares. Neither part is negative. Samples in which
    /// calls and units are always in one proportion determine the sum alone: then all of it is for units, or for calls
    /// if there are no units. `None` without calls and units.
    pub fn fit(samples: impl IntoIterator<Item = Sample>) -> Option<Cost> {
        let [mut cc, mut cu, mut uu, mut ct, mut ut] = [0.0; 5];
        for Sample { calls, units, us } in samples {
            cc += calls * calls;
            cu += calls * units;
            uu += units * units;
            ct += calls * us;
            ut += units * us;
        }
        let only_calls = Cost { call_us: if cc > 0.0 { (ct / cc).max(0.0) } else { 0.0 }, unit_us: 0.0 };
        let only_units = Cost { call_us: 0.0, unit_us: if uu > 0.0 { (ut / uu).max(0.0) } else { 0.0 } };
        if cc == 0.0 && uu == 0.0 {
            return None;
        }
        let determinant = cc * uu - cu * cu;
        // All samples of one proportion, but for rounding.
        if determinant <= 1e-9 * cc * uu {
            return Some(if uu > 0.0 { only_units } else { only_calls });
        }
        let both =
            Cost { call_us: (ct * uu - ut * cu) / determinant, unit_us: (ut * cc - ct * cu) / determinant };
        Some(match (both.call_us < 0.0, both.unit_us < 0.0) {
            (true, _) => only_units,
            (_, true) => only_calls,
            _ => both,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_of_samples_yields_call_and_unit_costs() {
        let cost = Cost { call_us: 0.5, unit_us: 0.01 };
        let sample =
            |calls: f64, units: f64| Sample { calls, units, us: calls * cost.call_us + units * cost.unit_us };
        let fitted =
            Cost::fit([sample(1.0, 10.0), sample(4.0, 1000.0), sample(16.0, 20.0)]).expect("samples");
        assert!((fitted.call_us - 0.5).abs() < 1e-9 && (fitted.unit_us - 0.01).abs() < 1e-9, "{fitted:?}");
        assert!((fitted.of(100.0) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn insufficient_or_contradictory_samples_fit_without_negative_cost() {
        assert_eq!(Cost::fit([]), None);
        let one = Sample { calls: 2.0, units: 10.0, us: 5.0 };
        assert_eq!(Cost::fit([one, one]), Some(Cost { call_us: 0.0, unit_us: 0.5 }));
        let no_units = Sample { units: 0.0, ..one };
        assert_eq!(Cost::fit([no_units]), Some(Cost { call_us: 2.5, unit_us: 0.0 }));
        // More units that took less time, and more calls that did.
        let less = Sample { calls: 1.0, units: 20.0, us: 1.0 };
        assert!(
            Cost::fit([Sample { calls: 1.0, units: 1.0, us: 2.0 }, less]).expect("samples").unit_us == 0.0
        );
        let fewer = Sample { calls: 9.0, units: 1.0, us: 1.0 };
        assert!(
            Cost::fit([Sample { calls: 1.0, units: 1.0, us: 2.0 }, fewer]).expect("samples").call_us >= 0.0
        );
    }
}

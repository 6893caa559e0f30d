//! Which failovers the faults of a run have asked for.

use crate::history::Timestamp;

/// The faults that make another server the master, each from when to when. Each explains one promotion.
#[derive(Debug, Default)]
pub(super) struct Planned(Vec<(Timestamp, Timestamp)>);

impl Planned {
    pub(super) fn add(&mut self, from: Timestamp, to: Timestamp) {
        self.0.push((from, to));
    }

    /// The promotions that no fault explains. Times of logs have milliseconds only.
    pub(super) fn without(&self, mut promotions: Vec<Timestamp>) -> Vec<Timestamp> {
        const MILLISECOND: Timestamp = 1_000_000;
        promotions.sort_unstable();
        for (from, to) in &self.0 {
            let is_explained = |at: &Timestamp| *at + MILLISECOND >= *from && *at <= *to;
            if let Some(explained) = promotions.iter().position(is_explained) {
                promotions.remove(explained);
            }
        }
        promotions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_explains_one_promotion_of_its_time() {
        const MS: Timestamp = 1_000_000;
        let mut planned = Planned::default();
        planned.add(100 * MS, 200 * MS);
        assert!(planned.without(vec![150 * MS]).is_empty());
        assert_eq!(planned.without(vec![160 * MS, 150 * MS]), [160 * MS]);
        assert_eq!(
            planned.without(vec![90 * MS, 250 * MS]),
            [90 * MS, 250 * MS]
        );
    }
}

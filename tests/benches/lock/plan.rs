//! How much a run measures, and the rounds in which the sides of a row take turns.

use std::time::{Duration, Instant};

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds of each row.
    pub(crate) rounds: usize,
    /// How long one side of a row is measured in one round.
    pub(crate) slice: Duration,
    /// A row ends early after this time, so that a run ends on time on a slow machine too.
    pub(crate) row_limit: Duration,
    /// Releases whose hand-over is timed.
    pub(crate) hand_overs: usize,
    /// How long processes share a key in one round, and how many rounds they do it in.
    pub(crate) share: (Duration, usize),
}

/// A median of fewer rounds says nothing about their spread.
const LEAST_ROUNDS: usize = 3;

impl Plan {
    /// A run of some minutes, or with `quick` of less than two minutes.
    pub(crate) fn new(quick: bool) -> Self {
        let ms = Duration::from_millis;
        if quick {
            Self {
                rounds: 7,
                slice: ms(30),
                row_limit: ms(1_500),
                hand_overs: 20,
                share: (ms(400), 3),
            }
        } else {
            Self {
                rounds: 21,
                slice: ms(100),
                row_limit: ms(12_000),
                hand_overs: 100,
                share: (ms(1_000), 5),
            }
        }
    }

    /// Measures all sides in turn, round after round, and returns the figures of each side. A round that is not counted
    /// comes first: it opens the connections and loads the scripts. Each round begins with another side.
    pub(crate) async fn alternate<S>(
        &self,
        sides: &[S],
        mut measure: impl AsyncFnMut(&S) -> f64,
    ) -> Vec<Vec<f64>> {
        let mut figures = vec![Vec::new(); sides.len()];
        for side in sides {
            measure(side).await;
        }
        let start = Instant::now();
        for round in 0..self.rounds {
            if round >= LEAST_ROUNDS && start.elapsed() > self.row_limit {
                break;
            }
            for nth in 0..sides.len() {
                let at = (round + nth) % sides.len();
                figures[at].push(measure(&sides[at]).await);
            }
        }
        figures
    }
}

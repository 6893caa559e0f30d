//! One curve: what each size cost.

use std::fmt::{self, Display, Formatter};

use distlock_bench::short;

/// Sizes and their figures, as a table and as a [plot](crate::plot).
pub(crate) struct Curve {
    /// Names its plot, and its place in the page.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What the sizes count.
    pub(crate) sizes: &'static str,
    columns: &'static [Column],
    points: Vec<(usize, Vec<f64>)>,
}

/// One figure of each size.
pub(crate) enum Column {
    Drawn(&'static str),
    /// In the table only.
    Listed(&'static str),
}

/// A line of the plot: its name, and its points.
pub(crate) type Line = (&'static str, Vec<(f64, f64)>);

impl Column {
    fn name(&self) -> &'static str {
        match self {
            Self::Drawn(name) | Self::Listed(name) => name,
        }
    }
}

impl Curve {
    pub(crate) fn new(
        name: &'static str,
        title: &'static str,
        sizes: &'static str,
        columns: &'static [Column],
    ) -> Self {
        println!("\n{title}");
        Self {
            name,
            title,
            sizes,
            columns,
            points: Vec::new(),
        }
    }

    /// Adds the figures of a size in the order of the columns, and prints them as progress.
    pub(crate) fn push(&mut self, size: usize, figures: Vec<f64>) {
        assert_eq!(figures.len(), self.columns.len(), "{}", self.name);
        let named = self.columns.iter().zip(&figures);
        let cells: Vec<String> = named
            .map(|(column, figure)| format!("{} {}", short(*figure), column.name()))
            .collect();
        println!("{size:>7} {}: {}", self.sizes, cells.join("; "));
        self.points.push((size, figures));
    }

    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.points.iter().map(|(size, _)| *size)
    }

    /// The lines of the plot. A figure of 0 has no place on a logarithmic axis.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let drawn = self.columns.iter().enumerate();
        let drawn = drawn.filter_map(|(at, column)| match column {
            Column::Drawn(name) => Some((at, *name)),
            Column::Listed(_) => None,
        });
        drawn
            .map(|(at, name)| {
                let points = self.points.iter();
                let points = points.map(|(size, figures)| (*size as f64, figures[at]));
                (name, points.filter(|(_, figure)| *figure > 0.0).collect())
            })
            .collect()
    }
}

impl Display for Curve {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut rows = vec![vec![self.sizes.to_owned()]];
        rows[0].extend(self.columns.iter().map(|column| column.name().to_owned()));
        for (size, figures) in &self.points {
            let mut row = vec![size.to_string()];
            row.extend(figures.iter().map(|figure| short(*figure)));
            rows.push(row);
        }
        for (n, row) in rows.iter().enumerate() {
            writeln!(f, "| {} |", row.join(" | "))?;
            if n == 0 {
                writeln!(f, "|{}", " ---: |".repeat(row.len()))?;
            }
        }
        Ok(())
    }
}

//! The report for people.

use super::report::{Number, Report, Spread};
use crate::cli::terminal::{Column, Screen, show, table};
use std::fmt::Write as _;

impl Report {
    /// Tables.
    pub fn print(&self) -> anyhow::Result<()> {
        let screen = Screen::stdout();
        show(&self.speeds(screen))?;
        show("\n")?;
        show(&self.costs(screen))?;
        let mut text = String::new();
        for one in &self.series {
            let named = one
                .total(|sample| &sample.refused)
                .into_iter()
                .map(|(name, count)| ("refused", name, count))
                .chain(
                    one.total(|sample| &sample.errors)
                        .into_iter()
                        .map(|(name, count)| ("error", name, count)),
                );
            for (what, name, count) in named {
                let _ = writeln!(text, "{}: {what}: {name}: {count}", one.plan.name);
            }
        }
        if !text.is_empty() {
            show(&format!("\n{text}"))?;
        }
        let rows: Vec<Vec<String>> = self
            .compared()
            .into_iter()
            .map(|(name, spread)| {
                let of = |number: Number| format!("{:.3}", number.0);
                vec![
                    name.to_owned(),
                    of(spread.median),
                    of(spread.min),
                    of(spread.max),
                ]
            })
            .collect();
        if !rows.is_empty() {
            let columns = ["RATIO", "MEDIAN", "MIN", "MAX"].map(Column::kept);
            show(&format!("\n{}", table(screen, &columns, &rows)))?;
        }
        Ok(())
    }

    fn speeds(&self, screen: Screen) -> String {
        let columns = [
            "WORKLOAD", "CONN", "FRAMES/S", "MIN-MAX", "P50 MS", "P99 MS", "P99.9",
        ];
        let rows = self.series.iter().map(|one| {
            let rate = one.spread(|sample| Some(sample.per_second));
            let range = rate.map(|rate| format!("{:.0}-{:.0}", rate.min.0, rate.max.0));
            let ms = |spread: Option<Spread>| shown(spread, 2);
            vec![
                one.plan.name.to_owned(),
                one.plan.connections.to_string(),
                shown(rate, 0),
                range.unwrap_or_default(),
                ms(one.spread(|sample| sample.p50_ms)),
                ms(one.spread(|sample| sample.p99_ms)),
                ms(one.spread(|sample| sample.p99_9_ms)),
            ]
        });
        table(
            screen,
            &columns.map(Column::kept),
            &rows.collect::<Vec<_>>(),
        )
    }

    fn costs(&self, screen: Screen) -> String {
        let columns = [
            "A FRAME", "SERVER", "POSTGRES", "CLIENT", "BYTES", "STORED", "WAL", "FAILED",
        ];
        let rows = self.series.iter().map(|one| {
            let cpu = |spread: Option<Spread>| match spread {
                Some(_) => format!("{} µs", shown(spread, 1)),
                None => NOT_MEASURED.to_owned(),
            };
            let failed: u64 = one.total(|sample| &sample.refused).values().sum::<u64>()
                + one.total(|sample| &sample.errors).values().sum::<u64>();
            vec![
                one.plan.name.to_owned(),
                cpu(one.spread(|sample| sample.server_cpu_us)),
                cpu(one.spread(|sample| sample.postgres_cpu_us)),
                cpu(one.spread(|sample| sample.client_cpu_us)),
                shown(one.spread(|sample| sample.frame_bytes), 0),
                shown(one.spread(|sample| sample.stored_bytes), 0),
                shown(one.spread(|sample| sample.wal_bytes), 0),
                failed.to_string(),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let is_all_there = rows.iter().flatten().all(|cell| cell != NOT_MEASURED);
        let legend = if is_all_there {
            ""
        } else {
            "-: not measured\n"
        };
        format!(
            "{}{legend}",
            table(screen, &columns.map(Column::kept), &rows)
        )
    }
}

const NOT_MEASURED: &str = "-";

/// A median, with so many digits after the point.
fn shown(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || NOT_MEASURED.to_owned(),
        |spread| format!("{:.digits$}", spread.median.0),
    )
}

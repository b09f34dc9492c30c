//! Receipts that a writer kept (spec: `docs/spec/ledger.md`).

use onrecord_core::receipt::Receipt;

/// Why a text is no list of receipts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReceipts {
    /// A line is none.
    #[error("receipts, line {line}: {cause}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// None at all, which would check nothing.
    #[error("no receipts in the file")]
    None,
}

/// Reads receipts, one `{run, seq, hash, at}` a line.
pub fn parse_receipts(text: &str) -> Result<Vec<Receipt>, BadReceipts> {
    let mut receipts = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        receipts.push(
            onrecord_core::json::typed(line.as_bytes()).map_err(|error| BadReceipts::Line {
                line: index + 1,
                cause: error.to_string(),
            })?,
        );
    }
    if receipts.is_empty() {
        return Err(BadReceipts::None);
    }
    Ok(receipts)
}

//! Rows of a table as lines of text.

/// Headings and rows as lines, columns as wide as they need to be.
pub fn layout<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> (String, Vec<String>) {
    let mut widths = headings.map(|heading| heading.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str))).collect();
    (line(headings), rows)
}

/// What others wrote, in one line and without control characters.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

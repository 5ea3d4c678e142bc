//! A small picture of what ran when: one line a track, time to the right, the height of a block the busy share of its
//! column. Pure: intervals in, text out.

use std::ops::Range;

/// Columns of a picture.
pub const COLUMNS: usize = 64;
/// Busy shares in eighths.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Intervals of one kind, in nanoseconds of one clock (or bytes of one file): sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Busy(Vec<Range<u64>>);

impl Busy {
    /// The union of intervals in any order.
    #[must_use]
    pub fn union(mut spans: Vec<Range<u64>>) -> Self {
        spans.retain(|span| span.start < span.end);
        spans.sort_by_key(|span| span.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        Self(merged)
    }

    /// What of these intervals is in none of the others.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = others.0.iter().peekable();
        for span in &self.0 {
            let mut begin = span.start;
            while let Some(other) = others.next_if(|other| other.end <= span.end) {
                left.push(begin..other.start.max(begin));
                begin = begin.max(other.end);
            }
            // One that goes on beyond this interval may reach into the next one.
            let end = others.peek().map_or(span.end, |other| other.start.min(span.end));
            left.push(begin..end);
        }
        Self::union(left)
    }

    /// The intervals.
    #[must_use]
    pub fn spans(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Nanoseconds (or bytes) in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|span| span.end - span.start).sum()
    }

    /// From the first beginning to the last end.
    #[must_use]
    pub fn extent(&self) -> Option<Range<u64>> {
        Some(self.0.first()?.start..self.0.last()?.end)
    }

    /// Nanoseconds inside a window.
    fn within(&self, window: &Range<u64>) -> u64 {
        let overlap =
            |span: &Range<u64>| span.end.min(window.end).saturating_sub(span.start.max(window.start));
        self.0.iter().map(overlap).sum()
    }
}

/// The window that holds all tracks.
#[must_use]
pub fn window(tracks: &[(&str, Busy)]) -> Range<u64> {
    let extents = || tracks.iter().filter_map(|(_, busy)| busy.extent());
    let begin = extents().map(|extent| extent.start).min().unwrap_or(0);
    let end = extents().map(|extent| extent.end).max().unwrap_or(begin);
    begin..end.max(begin + 1)
}

/// The picture: a line of marks (each at its time), the tracks, and the time axis.
#[must_use]
pub fn draw(window: &Range<u64>, marks: &[(u64, String)], tracks: &[(&str, Busy)]) -> String {
    let length = window.end - window.start;
    let edge = |column: usize| window.start + (u128::from(length) * column as u128 / COLUMNS as u128) as u64;
    let width = tracks.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {}\n", "", mark_line(window, marks));
    for (name, busy) in tracks {
        let block = |column: usize| {
            let cell = edge(column)..edge(column + 1).max(edge(column) + 1);
            let eighths = (8 * busy.within(&cell)).div_ceil(cell.end - cell.start);
            BLOCKS[(eighths as usize).min(8)]
        };
        let line: String = (0..COLUMNS).map(block).collect();
        text += &format!("{name:width$} │{line}│\n");
    }
    let end = format!("{:.2} ms", length as f64 / 1e6);
    text + &format!("{:width$}  0{end:>rest$}\n", "", rest = COLUMNS - 1)
}

/// Marks at their columns; one that would run into the one before it is left out.
fn mark_line(window: &Range<u64>, marks: &[(u64, String)]) -> String {
    let length = window.end - window.start;
    let mut line = String::new();
    for (time, label) in marks {
        let since = time.clamp(&window.start, &window.end) - window.start;
        let column = (u128::from(since) * COLUMNS as u128 / u128::from(length)) as usize;
        let used = line.chars().count();
        if column < COLUMNS && (used == 0 || column > used) {
            line.extend(std::iter::repeat_n(' ', column - used));
            line += label;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_count_overlaps_once() {
        let busy = Busy::union(vec![50..60, 0..10, 5..20, 20..25, 70..70]);
        assert_eq!(busy, Busy(vec![0..25, 50..60]));
        assert_eq!(busy.total(), 35);
        assert_eq!(busy.extent(), Some(0..60));
        assert_eq!(busy.within(&(24..51)), 2);
        assert_eq!(Busy::union(vec![]).extent(), None);
    }

    #[test]
    fn what_is_taken_out_is_taken_out_wherever_it_reaches() {
        let busy = Busy::union(vec![10..20, 30..40, 50..60]);
        let without = |others| busy.without(&Busy::union(others)).0;
        assert_eq!(without(vec![]), busy.0);
        assert_eq!(without(vec![0..5, 12..14, 16..20]), [10..12, 14..16, 30..40, 50..60]);
        assert_eq!(without(vec![15..35, 40..50]), [10..15, 35..40, 50..60], "from one into the next");
        assert_eq!(without(vec![9..30, 29..61]), []);
    }

    #[test]
    fn a_picture_has_a_column_for_each_share_of_time() {
        // 64 columns of 10 ns: full, then half of a column, then nothing until the last one.
        let tracks =
            [("loads", Busy::union(vec![0..15, 630..640])), ("kernels", Busy::union(vec![10..15, 15..20]))];
        let window = window(&tracks);
        assert_eq!(window, 0..640);
        let picture = draw(&window, &[(0, "a".into()), (5, "b".into()), (320, "c".into())], &tracks);
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines[0], format!("         a{}c", " ".repeat(31)));
        assert_eq!(lines[1], format!("loads   │█▄{}█│", " ".repeat(61)));
        assert_eq!(lines[2], format!("kernels │ █{}│", " ".repeat(62)));
        assert_eq!(lines[3], format!("         0{}0.00 ms", " ".repeat(56)));
    }

    #[test]
    fn an_empty_picture_is_no_division_by_zero() {
        let tracks = [("loads", Busy::default())];
        assert!(draw(&window(&tracks), &[], &tracks).contains("loads"));
    }
}

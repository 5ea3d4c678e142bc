//! Covering arrays: few combinations of settings in which every pair of values of any two settings occurs.
//!
//! Most faults of configuration need two settings to meet, seldom three, so a cover of the pairs finds nearly what the
//! whole grid finds at a hundredth of the price. The greedy construction is deterministic and small enough; the whole
//! grid is there for the long runs.

use std::collections::BTreeSet;

/// A value of one setting with a value of another: ((setting, value), (setting, value)), settings ascending.
type Pair = ((usize, usize), (usize, usize));

/// Combinations (one value index for each setting) that cover all pairs; `levels` are the values of each setting.
#[must_use]
pub fn cover(levels: &[usize]) -> Vec<Vec<usize>> {
    let mut open: BTreeSet<Pair> = pairs_of(levels).collect();
    if levels.len() < 2 {
        return grid(levels);
    }
    let mut rows = Vec::new();
    while let Some(&(first, second)) = open.first() {
        let mut row: Vec<Option<usize>> = vec![None; levels.len()];
        row[first.0] = Some(first.1);
        row[second.0] = Some(second.1);
        for setting in 0..levels.len() {
            if row[setting].is_none() {
                let gain = |value: usize| {
                    let chosen = row.iter().enumerate().filter_map(|(other, v)| Some((other, (*v)?)));
                    chosen.filter(|&other| open.contains(&pair(other, (setting, value)))).count()
                };
                // The first of the best, so that the result does not depend on anything but the levels.
                row[setting] = (0..levels[setting]).rev().max_by_key(|&value| gain(value));
            }
        }
        let row: Vec<usize> =
            row.into_iter().map(|value| value.expect("every setting has a value")).collect();
        for (a, &x) in row.iter().enumerate() {
            for (b, &y) in row.iter().enumerate().skip(a + 1) {
                open.remove(&((a, x), (b, y)));
            }
        }
        rows.push(row);
    }
    rows
}

/// Every combination.
#[must_use]
pub fn grid(levels: &[usize]) -> Vec<Vec<usize>> {
    levels.iter().fold(vec![Vec::new()], |rows, &count| {
        let extend = |row: Vec<usize>| {
            (0..count).map(move |value| row.iter().copied().chain([value]).collect::<Vec<_>>())
        };
        rows.into_iter().flat_map(extend).collect()
    })
}

fn pair(a: (usize, usize), b: (usize, usize)) -> Pair {
    if a.0 < b.0 { (a, b) } else { (b, a) }
}

fn pairs_of(levels: &[usize]) -> impl Iterator<Item = Pair> {
    let values = move |setting: usize| (0..levels[setting]).map(move |value| (setting, value));
    let settings = (0..levels.len()).flat_map(move |a| (a + 1..levels.len()).map(move |b| (a, b)));
    settings.flat_map(move |(a, b)| values(a).flat_map(move |x| values(b).map(move |y| (x, y))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_covered_and_nothing_else_is_claimed() {
        for levels in [vec![5, 4, 3, 2, 4, 3, 2], vec![2, 2, 2], vec![3; 6], vec![1, 4, 1], vec![7, 2]] {
            let rows = cover(&levels);
            for a in 0..levels.len() {
                for b in a + 1..levels.len() {
                    for (x, y) in grid(&[levels[a], levels[b]]).into_iter().map(|row| (row[0], row[1])) {
                        assert!(
                            rows.iter().any(|row| row[a] == x && row[b] == y),
                            "{levels:?}: {a}={x}, {b}={y}"
                        );
                    }
                }
            }
            assert!(rows.iter().all(|row| row.iter().zip(&levels).all(|(value, count)| value < count)));
            // Two largest settings bound it from below; the greedy rows stay within twice that.
            let mut sorted = levels.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let least = sorted[0] * sorted[1];
            assert!((least..=2 * least).contains(&rows.len()), "{levels:?}: {} rows", rows.len());
        }
    }

    #[test]
    fn a_single_setting_is_its_values_and_the_grid_is_whole() {
        assert_eq!(cover(&[3]), [[0], [1], [2]]);
        assert_eq!(grid(&[2, 3]), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
    }
}

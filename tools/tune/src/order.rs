//! A storage order from observed routing: experts that work much first, those that hardly ever do together at the end.
//!
//! Groups are read whole, so a group with one busy expert is read whatever its other experts do. Sorting by work puts the
//! idle ones into groups of their own, which are skipped. Ties keep the order that there was.

/// π of each layer as lists of experts in storage order, from the work that each storage position had: `work[layer][i]` of
/// the expert `stored[layer][i]`.
#[must_use]
pub fn order(work: &[Vec<u64>], stored: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let layer = |(work, stored): (&Vec<u64>, &Vec<usize>)| {
        let mut positions: Vec<usize> = (0..stored.len()).collect();
        positions.sort_by_key(|&position| std::cmp::Reverse(work.get(position).copied().unwrap_or(0)));
        positions.into_iter().map(|position| stored[position]).collect()
    };
    work.iter().zip(stored).map(layer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_experts_come_first_and_ties_stay() {
        let sorted = order(&[vec![0, 7, 0, 9], vec![1, 1]], &[vec![3, 1, 0, 2], vec![1, 0]]);
        assert_eq!(sorted, [vec![2, 1, 3, 0], vec![1, 0]]);
    }
}

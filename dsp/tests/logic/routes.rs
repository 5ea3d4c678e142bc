//! The counting sort against a filter over all choices.

use estream_dsp::routes::{Route, RouteError, RouteMap, Spread};
use proptest::prelude::*;

/// A layer's choices: distinct experts for each token, with weights that name their origin.
#[derive(Clone, Debug)]
struct Layer {
    per_token: usize,
    chosen: Vec<u16>,
    weights: Vec<f32>,
    positions: Vec<u16>,
}

fn layers() -> impl Strategy<Value = Layer> {
    (1usize..20, 0usize..40).prop_flat_map(|(experts, tokens)| {
        let all: Vec<u16> = (0..experts as u16).collect();
        let positions = Just(all.clone()).prop_shuffle();
        (1..=experts, positions).prop_flat_map(move |(per_token, positions)| {
            let token = Just(all.clone()).prop_shuffle();
            proptest::collection::vec(token, tokens).prop_map(move |tokens| {
                let chosen: Vec<u16> = tokens.iter().flat_map(|all| all[..per_token].to_vec()).collect();
                let weights = (0..chosen.len()).map(|route| route as f32).collect();
                Layer { per_token, chosen, weights, positions: positions.clone() }
            })
        })
    })
}

impl Layer {
    /// The routes of a position by looking at every choice.
    fn at(&self, position: usize) -> Vec<Route> {
        let routes = self.chosen.iter().zip(&self.weights).enumerate();
        let here =
            routes.filter(|(_, (expert, _))| usize::from(self.positions[usize::from(**expert)]) == position);
        here.map(|(i, (_, &weight))| Route { token: (i / self.per_token) as u32, weight }).collect()
    }
}

proptest! {
    #[test]
    fn every_route_is_at_its_position_in_token_order(layer in layers(), size in 1usize..25) {
        let experts = layer.positions.len();
        // Tables larger than the layer, with rubbish from an earlier one.
        let (mut offsets, mut records) = (vec![7; experts + 3], vec![Route { token: 9, weight: 9.0 }; layer.chosen.len() + 2]);
        let mut map = RouteMap::new(&mut offsets, &mut records);
        map.build(&layer.chosen, &layer.weights, layer.per_token, &layer.positions).unwrap();

        prop_assert_eq!((map.experts(), map.len()), (experts, layer.chosen.len()));
        for position in 0..experts + 2 {
            prop_assert_eq!(map.position(position), &layer.at(position)[..]);
        }
        for group in 0..experts.div_ceil(size) + 1 {
            let csr = map.group(group, size);
            let members = (group * size).min(experts)..(group * size + size).min(experts);
            prop_assert_eq!(csr.places(), members.len());
            for place in 0..size + 1 {
                let expected = if place < members.len() { layer.at(members.start + place) } else { vec![] };
                prop_assert_eq!(csr.place(place), &expected[..]);
            }
            let total: usize = members.map(|position| layer.at(position).len()).sum();
            prop_assert_eq!((csr.len(), csr.is_empty(), map.group_len(group, size)), (total, total == 0, total));
        }

        let mut spread = Spread::default();
        spread.add(&map);
        let counts: Vec<usize> = (0..experts).map(|position| layer.at(position).len()).collect();
        prop_assert_eq!(spread.pairs as usize, experts);
        prop_assert_eq!(spread.pairs_routed as usize, counts.iter().filter(|&&count| count > 0).count());
        for (bucket, &pairs) in spread.histogram.iter().enumerate() {
            let range = 1usize << bucket..2usize << bucket;
            prop_assert_eq!(pairs as usize, counts.iter().filter(|count| range.contains(count)).count());
        }
        let largest = counts.iter().copied().max().unwrap_or(0) as f32 / (layer.chosen.len().max(1)) as f32;
        prop_assert_eq!(spread.max_share, largest);
    }
}

#[test]
fn what_cannot_be_sorted_is_named_and_leaves_no_routes() {
    let (mut offsets, mut records) = ([0; 5], [Route::default(); 4]);
    let mut map = RouteMap::new(&mut offsets, &mut records);
    let identity = [0, 1, 2, 3];
    let mut refused = |chosen: &[u16], weights: &[f32], per_token: usize, positions: &[u16]| {
        map.build(&[0, 1], &[1.0, 1.0], 1, &identity).unwrap();
        let error = map.build(chosen, weights, per_token, positions).unwrap_err();
        assert!(map.is_empty() && map.group(0, 4).is_empty() && map.position(0).is_empty());
        error
    };
    let ones = [1.0; 6];
    assert_eq!(refused(&[0, 1], &ones[..1], 1, &identity), RouteError::Lengths);
    assert_eq!(refused(&[0, 1, 2], &ones[..3], 2, &identity), RouteError::Lengths);
    assert_eq!(refused(&[0, 1], &ones[..2], 0, &identity), RouteError::Lengths);
    let routes = 6;
    assert_eq!(refused(&[0; 6], &ones, 2, &identity), RouteError::Capacity { experts: 4, routes });
    assert_eq!(
        refused(&[0], &ones[..1], 1, &[0, 1, 2, 3, 4]),
        RouteError::Capacity { experts: 5, routes: 1 }
    );
    assert_eq!(refused(&[0, 4], &ones[..2], 1, &identity), RouteError::Expert { token: 1, expert: 4 });
    assert_eq!(refused(&[0], &ones[..1], 1, &[0, 1, 4, 3]), RouteError::Permutation { expert: 2 });
    assert_eq!(refused(&[0], &ones[..1], 1, &[0, 1, 1, 3]), RouteError::Permutation { expert: 2 });
    let duplicate = RouteError::Duplicate { token: 1, position: 3 };
    assert_eq!(refused(&[0, 1, 2, 2], &ones[..4], 2, &[0, 1, 3, 2]), duplicate);
}

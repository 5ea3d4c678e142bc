//! The bank protocol in random worlds, against a model that remembers everything and knows nothing of cursors.

use estream_dsp::residency::{Bank, Group, Loaded, Next, Ready, Residency, ResidencyError};
use estream_idl::streaming::Schedule;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What a bank holds, as the outside world knows it.
#[derive(Clone, Debug)]
struct Held {
    layer: usize,
    group: usize,
    outstanding: u32,
    in_use: bool,
}

/// Layers with their experts and, for each group, whether the router will want it.
#[derive(Clone, Debug)]
struct World {
    size: u32,
    experts: Vec<u32>,
    banks: usize,
    wanted: Vec<Vec<bool>>,
    schedule: Schedule,
    seed: u64,
}

fn worlds() -> impl Strategy<Value = World> {
    let experts = proptest::collection::vec(0u32..14, 1..5);
    (experts, 1u32..6, 1usize..12, 0..=10u32, any::<bool>(), any::<u64>()).prop_flat_map(
        |(experts, size, banks, density, all, seed)| {
            let groups = |layer: &u32| layer.div_ceil(size) as usize;
            let banks = if all { experts.iter().map(groups).sum::<usize>().max(1) } else { banks };
            let schedule = Schedule::ALL[seed as usize % 4];
            let want = move || proptest::bool::weighted(f64::from(density) / 10.0);
            let wanted: Vec<_> =
                experts.iter().map(|l| proptest::collection::vec(want(), groups(l))).collect();
            wanted.prop_map(move |wanted| World {
                size,
                experts: experts.clone(),
                banks,
                wanted,
                schedule,
                seed,
            })
        },
    )
}

/// A run of the machine beside the model.
struct Run<'w, 'm> {
    world: &'w World,
    machine: Residency<'m>,
    banks: Vec<Option<Held>>,
    filled: BTreeSet<(usize, usize)>,
    ran: Vec<(usize, usize)>,
    readers: Vec<Ready>,
    layer: usize,
    routed: bool,
    random: u64,
}

impl Run<'_, '_> {
    /// xorshift: `true` once in `n`.
    fn once_in(&mut self, n: u64) -> bool {
        self.pick(n as usize) == 0
    }

    fn pick(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % n
    }

    /// The first group from the current layer on that is neither filled nor known to be unwanted.
    fn first_unread(&self) -> Option<(usize, usize)> {
        let groups = |layer: usize| (0..self.world.wanted[layer].len()).map(move |group| (layer, group));
        let mut all = (self.layer..self.world.experts.len()).flat_map(groups);
        all.find(|&(layer, group)| {
            let known = layer == self.layer && self.routed;
            !self.filled.contains(&(layer, group)) && (!known || self.world.wanted[layer][group])
        })
    }

    /// Whether the schedule lets a group of `layer` be read now, in its own words.
    fn may_fill(&self, layer: usize) -> bool {
        match self.world.schedule {
            Schedule::OnDemand => {
                layer == self.layer && self.routed && self.banks.iter().all(Option::is_none)
            }
            Schedule::AfterRouting => layer == self.layer && self.routed,
            Schedule::Early => layer == self.layer,
            Schedule::CrossLayer | Schedule::Resident => true,
        }
    }

    /// Asks for a fill and answers it, or sometimes does not.
    fn fill(&mut self) -> bool {
        let free = self.banks.iter().any(Option::is_none);
        let expected = self.first_unread().filter(|&(layer, _)| free && self.may_fill(layer));
        let fill = self.machine.next_fill();
        assert_eq!(fill.as_ref().map(|fill| (fill.layer() as usize, fill.group() as usize)), expected);
        let Some(fill) = fill else { return false };
        if self.once_in(4) {
            return true;
        }
        let (bank, layer, group) = (fill.bank() as usize, fill.layer() as usize, fill.group() as usize);
        assert!(self.banks[bank].is_none(), "bank {bank} is written while it is in use");
        assert!(self.filled.insert((layer, group)), "group {group} of layer {layer} is read twice");
        let outstanding = 1 + self.pick(3) as u32;
        self.machine.issued(fill, outstanding).unwrap();
        self.banks[bank] = Some(Held { layer, group, outstanding, in_use: false });
        true
    }

    fn loads(&self) -> Vec<usize> {
        let loading = |bank: &usize| self.banks[*bank].as_ref().is_some_and(|held| held.outstanding > 0);
        (0..self.banks.len()).filter(loading).collect()
    }

    /// Ends any one load that is out; whether there was one.
    fn land(&mut self, aborted: bool) -> bool {
        let loads = self.loads();
        if loads.is_empty() {
            return false;
        }
        let bank = loads[self.pick(loads.len())];
        let held = self.banks[bank].as_mut().unwrap();
        held.outstanding -= 1;
        let unwanted =
            aborted || self.routed && held.layer == self.layer && !self.world.wanted[held.layer][held.group];
        let unwanted = unwanted || held.layer < self.layer;
        let expected = match held.outstanding {
            0 if unwanted => Loaded::Retired,
            0 => Loaded::Ready,
            _ => Loaded::Partial,
        };
        if expected == Loaded::Retired {
            self.banks[bank] = None;
        }
        assert_eq!(self.machine.loaded(bank as u32), Ok(expected));
        true
    }

    /// Φ is what the model says, for every expert of the layer.
    fn check_slots(&self) {
        let size = self.world.size;
        for position in 0..self.world.experts.get(self.layer).map_or(0, |experts| experts + 2) {
            let holds = |held: &Held| {
                held.layer == self.layer && held.group as u32 == position / size && held.outstanding == 0
            };
            let bank = self.banks.iter().position(|held| held.as_ref().is_some_and(holds));
            let bank = bank.filter(|_| position < self.world.experts[self.layer]);
            assert_eq!(self.machine.slot(position), bank.map(|bank| bank as u32 * size + position % size));
        }
    }

    fn release(&mut self) {
        if !self.readers.is_empty() {
            let reader = self.pick(self.readers.len());
            let ready = self.readers.remove(reader);
            self.banks[ready.bank() as usize] = None;
            self.machine.release(ready);
        }
    }

    /// Before the router has spoken: fills and loads in any order. Then the router speaks.
    fn route(&mut self) {
        for _ in 0..self.pick(2 * self.banks.len() + 2) {
            let _ = if self.once_in(3) { self.land(false) } else { self.fill() };
            self.check_slots();
        }
        assert_eq!(self.machine.next(), Err(ResidencyError::Layer), "nothing runs before it is routed");
        assert_eq!(self.machine.end_layer(), Err(ResidencyError::Layer));
        let wanted = &self.world.wanted[self.layer];
        self.machine.routed(|group| wanted[group as usize]).unwrap();
        self.routed = true;
        for held in &mut self.banks {
            *held = held.take().filter(|h| h.layer != self.layer || h.outstanding > 0 || wanted[h.group]);
        }
    }

    /// One turn of the engine's loop; `false` when the layer is done.
    fn turn(&mut self) -> bool {
        if self.once_in(3) {
            self.land(false);
        }
        while self.fill() && !self.once_in(3) {}
        self.check_slots();
        match self.machine.next().unwrap() {
            Next::Run(ready) => {
                let held =
                    self.banks[ready.bank() as usize].as_mut().expect("a bank that holds something runs");
                assert_eq!((held.layer, held.group), (ready.layer() as usize, ready.group() as usize));
                assert!(held.outstanding == 0 && !held.in_use, "a bank is read before it is in");
                held.in_use = true;
                self.ran.push((held.layer, held.group));
                self.readers.push(ready);
            }
            Next::Wait => {
                let progress =
                    self.land(false) || !self.readers.is_empty() || self.machine.next_fill().is_some();
                assert!(progress, "deadlock in layer {}: nothing is out, nothing can be filled", self.layer);
                self.release();
            }
            Next::LayerDone if self.readers.is_empty() => return false,
            Next::LayerDone => {
                assert_eq!(self.machine.end_layer(), Err(ResidencyError::Layer), "a bank is still read");
                self.release();
            }
        }
        if self.once_in(2) {
            self.release();
        }
        true
    }

    fn pass(&mut self) {
        (self.layer, self.routed) = (0, false);
        self.filled.clear();
        self.ran.clear();
        self.machine.begin_pass().unwrap();
        while self.layer < self.world.experts.len() {
            assert_eq!(self.machine.layer(), Some(self.layer as u32));
            self.route();
            while self.turn() {}
            self.machine.end_layer().unwrap();
            (self.layer, self.routed) = (self.layer + 1, false);
        }
        assert_eq!(self.machine.layer(), None);
        while self.land(false) {}
        assert!(self.machine.is_idle() && self.banks.iter().all(Option::is_none));

        let all = || {
            self.world
                .wanted
                .iter()
                .enumerate()
                .flat_map(|(l, groups)| groups.iter().enumerate().map(move |(g, &w)| (l, g, w)))
        };
        let routed: Vec<_> = all().filter(|&(.., wanted)| wanted).map(|(l, g, _)| (l, g)).collect();
        assert_eq!(self.ran, routed, "every routed group runs once, in storage order");
        let counters = self.machine.counters();
        assert_eq!(counters.loaded as usize, self.filled.len());
        assert_eq!((counters.loaded + counters.skipped) as usize, all().count());
        assert_eq!((counters.loaded - counters.speculative) as usize, routed.len());
    }

    /// A pass that is given up somewhere, by a cancel or a failed load.
    fn aborted_pass(&mut self) {
        (self.layer, self.routed) = (0, false);
        self.filled.clear();
        self.machine.begin_pass().unwrap();
        self.route();
        for _ in 0..self.pick(12) {
            if !self.turn() {
                break;
            }
        }
        let loads = self.loads();
        if loads.is_empty() || self.once_in(2) {
            self.machine.abort();
        } else {
            let bank = loads[self.pick(loads.len())];
            let held = self.banks[bank].as_mut().unwrap();
            held.outstanding -= 1;
            let expected = if held.outstanding == 0 { Loaded::Retired } else { Loaded::Partial };
            assert_eq!(self.machine.failed(bank as u32), Ok(expected));
        }
        for held in &mut self.banks {
            *held = held.take().filter(|held| held.outstanding > 0 || held.in_use);
        }
        assert_eq!(self.machine.next_fill(), None);
        assert_eq!(self.machine.next(), Err(ResidencyError::Aborted));
        while self.banks.iter().any(Option::is_some) {
            assert_eq!(self.machine.begin_pass(), Err(ResidencyError::Busy));
            self.land(true);
            self.release();
        }
        assert!(self.machine.is_idle());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_world_runs_to_its_end(world in worlds()) {
        let entries = Residency::group_entries(&world.experts, world.size).unwrap();
        let (mut banks, mut groups) = (vec![Bank::default(); world.banks], vec![Group::default(); entries as usize]);
        let machine = Residency::new(&mut banks, &mut groups, &world.experts, world.size).unwrap();
        let machine = machine.with_schedule(world.schedule);
        let mut run = Run {
            world: &world,
            machine,
            banks: vec![None; world.banks],
            filled: BTreeSet::new(),
            ran: vec![],
            readers: vec![],
            layer: 0,
            routed: false,
            random: world.seed | 1,
        };
        run.pass();
        run.aborted_pass();
        run.pass();
    }
}

/// A machine of two layers of four groups, with a pass begun.
fn with_machine(banks: usize, body: impl FnOnce(Residency<'_>)) {
    let (mut banks, mut groups) = (vec![Bank::default(); banks], [Group::default(); 8]);
    let mut machine = Residency::new(&mut banks, &mut groups, &[8, 8], 2).unwrap();
    machine.begin_pass().unwrap();
    body(machine);
}

fn fill(machine: &mut Residency<'_>) -> Option<(u32, u32, u32)> {
    let fill = machine.next_fill()?;
    let named = (fill.bank(), fill.layer(), fill.group());
    machine.issued(fill, 1).unwrap();
    Some(named)
}

#[test]
fn the_next_layer_is_prefetched_when_the_current_one_needs_no_more() {
    with_machine(3, |mut machine| {
        assert_eq!(
            [(); 4].map(|()| fill(&mut machine)),
            [Some((0, 0, 0)), Some((1, 0, 1)), Some((2, 0, 2)), None]
        );
        assert_eq!(machine.loaded(1), Ok(Loaded::Ready));
        // Groups 0 and 1 have no routes: one is still out, one is in; group 2 is wanted, 3 is skipped.
        machine.routed(|group| group == 2).unwrap();
        assert_eq!(
            fill(&mut machine),
            Some((1, 1, 0)),
            "the retired bank takes the next layer's first group"
        );
        assert_eq!(machine.loaded(0), Ok(Loaded::Retired));
        assert_eq!(fill(&mut machine), Some((0, 1, 1)));
        assert_eq!(machine.next(), Ok(Next::Wait));
        assert_eq!(machine.loaded(2), Ok(Loaded::Ready));
        assert_eq!((machine.slot(4), machine.slot(5), machine.slot(6)), (Some(4), Some(5), None));
        let Ok(Next::Run(ready)) = machine.next() else { panic!("group 2 is in") };
        assert_eq!(machine.next(), Ok(Next::LayerDone));
        machine.release(ready);
        machine.end_layer().unwrap();
        let counters = machine.counters();
        assert_eq!((counters.loaded, counters.skipped, counters.speculative), (5, 1, 2));
    });
}

#[test]
fn events_that_do_not_fit_are_refused_and_change_nothing() {
    with_machine(2, |mut machine| {
        let stale = machine.next_fill().unwrap();
        let loadless = machine.next_fill().unwrap();
        assert_eq!(machine.issued(loadless, 0), Err(ResidencyError::Fill));
        assert_eq!(fill(&mut machine), Some((0, 0, 0)));
        assert_eq!(machine.issued(stale, 1), Err(ResidencyError::Fill));
        for bank in [1, 2, u32::MAX] {
            assert_eq!(machine.loaded(bank), Err(ResidencyError::Bank { bank }));
            assert_eq!(machine.failed(bank), Err(ResidencyError::Bank { bank }));
        }
        assert_eq!(machine.loaded(0), Ok(Loaded::Ready));
        assert_eq!(machine.loaded(0), Err(ResidencyError::Bank { bank: 0 }), "a ticket too many");
        assert_eq!(machine.begin_pass(), Err(ResidencyError::Busy));
        machine.routed(|_| false).unwrap();
        assert_eq!(machine.routed(|_| true), Err(ResidencyError::Layer));
        assert_eq!(machine.next(), Ok(Next::LayerDone));
    });
    let (mut banks, mut groups) = ([Bank::default()], [Group::default(); 3]);
    for (size, used) in [(0, 3), (2, 3), (1, 3)] {
        let machine = Residency::new(&mut banks, &mut groups[..used], &[4], size);
        assert_eq!(machine.err(), Some(ResidencyError::Shape), "group size {size}");
    }
    assert_eq!(Residency::new(&mut [], &mut groups, &[3], 1).err(), Some(ResidencyError::Shape));
}

#[test]
fn resident_banks_keep_their_groups_from_pass_to_pass() {
    let (mut banks, mut groups) = ([Bank::default(); 4], [Group::default(); 4]);
    let machine = Residency::new(&mut banks, &mut groups, &[4, 3], 2).unwrap();
    let mut machine = machine.with_schedule(Schedule::Resident);
    machine.begin_pass().unwrap();
    for bank in 0..4 {
        assert_eq!(fill(&mut machine), Some((bank, bank / 2, bank % 2)));
        assert_eq!(machine.begin_pass(), Err(ResidencyError::Busy), "a load is out");
        // The third group fails to come, and is read again in the first pass.
        if bank != 2 {
            assert_eq!(machine.loaded(bank), Ok(Loaded::Ready));
        }
    }
    assert_eq!(machine.failed(2), Ok(Loaded::Retired));
    for pass in 0..3 {
        machine.begin_pass().unwrap();
        let again = fill(&mut machine);
        assert_eq!(again, (pass == 0).then_some((2, 1, 0)));
        if pass == 0 {
            assert_eq!(machine.loaded(2), Ok(Loaded::Ready));
        }
        // In every pass other groups have routes.
        let mut ran = vec![];
        for layer in 0..2 {
            machine.routed(|group| group + layer != pass).unwrap();
            while let Next::Run(ready) = machine.next().unwrap() {
                assert_eq!(ready.bank(), layer * 2 + ready.group(), "the group is where it was");
                ran.push((layer, ready.group()));
                machine.release(ready);
            }
            machine.end_layer().unwrap();
        }
        let expected = [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().filter(|&(l, g)| g + l != pass);
        assert_eq!(ran, expected.collect::<Vec<_>>());
        assert!(machine.is_idle() && machine.next_fill().is_none());
    }
}

//! The storage order of experts: a JSON list with one list a layer, each naming its experts in the order they are stored.

use crate::error::{Error, Result};
use crate::model::SparseLayer;
use crate::source::{FileRange, Source, read_vec};
use std::path::Path;

/// Bytes of an order file; the largest possible one is far smaller.
const LIMIT: u64 = 32 << 20;

/// For each sparse layer its experts in storage order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order(Vec<Vec<u16>>);

impl Order {
    /// Experts in the order of their numbers.
    pub(crate) fn identity(layers: &[SparseLayer]) -> Self {
        // The recipe bounds the experts of a layer by 4096.
        Self(layers.iter().map(|layer| (0..layer.experts).map(|expert| expert as u16).collect()).collect())
    }

    /// Reads and checks an order file.
    pub(crate) fn read(path: &Path, layers: &[SparseLayer]) -> Result<Self> {
        let in_file = |error: Error| error.in_file(path);
        let source = FileRange::open(path)?;
        if source.bytes() > LIMIT {
            return Err(in_file(Error::input(
                "bad-order",
                format!("an order file of more than {LIMIT} bytes"),
            )));
        }
        let text = read_vec(&source, 0, source.bytes() as usize).map_err(in_file)?;
        Self::parse(&text, layers).map_err(in_file)
    }

    fn parse(text: &[u8], layers: &[SparseLayer]) -> Result<Self> {
        let refused = |message: String| Err(Error::input("bad-order", message));
        let lists: Vec<Vec<i64>> = match serde_json::from_slice(text) {
            Ok(lists) => lists,
            Err(error) => return refused(format!("not a JSON list of lists of expert numbers: {error}")),
        };
        if lists.len() != layers.len() {
            return refused(format!("{} lists for {} layers with experts", lists.len(), layers.len()));
        }
        let mut orders = Vec::with_capacity(lists.len());
        for (list, layer) in lists.iter().zip(layers) {
            let (number, experts) = (layer.layer, layer.experts as usize);
            let mut seen = vec![false; experts];
            let mut order = Vec::with_capacity(experts);
            for &value in list {
                match usize::try_from(value).ok().filter(|&expert| expert < experts) {
                    None => {
                        return refused(format!(
                            "layer {number}: {value} is not one of its {experts} experts"
                        ));
                    }
                    Some(expert) if seen[expert] => {
                        return refused(format!("layer {number}: expert {value} stands twice"));
                    }
                    Some(expert) => {
                        seen[expert] = true;
                        order.push(expert as u16);
                    }
                }
            }
            if let Some(missing) = seen.iter().position(|seen| !seen) {
                return refused(format!("layer {number}: expert {missing} is missing"));
            }
            orders.push(order);
        }
        Ok(Self(orders))
    }

    /// Experts of sparse layer `index` in storage order.
    pub(crate) fn stored(&self, index: usize) -> &[u16] {
        &self.0[index]
    }

    /// π of sparse layer `index`: entry e is the storage position of expert e.
    pub(crate) fn positions(&self, index: usize) -> Vec<u16> {
        let stored = self.stored(index);
        let mut positions = vec![0; stored.len()];
        for (position, &expert) in stored.iter().enumerate() {
            positions[usize::from(expert)] = position as u16;
        }
        positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ExpertMatrix, Place};
    use estream_idl::format::Format;

    fn layers() -> [SparseLayer; 2] {
        let place = Place::Stacked { tensor: 0, first: 0, stride: 32 };
        let matrix = ExpertMatrix { k: 32, n: 32, format: Format::Q4_0, place };
        let [gate, up, down] = [(); 3].map(|()| matrix.clone());
        let layer = SparseLayer { layer: 4, experts: 3, gate, up, down };
        [layer.clone(), SparseLayer { layer: 7, ..layer }]
    }

    #[test]
    fn positions_invert_the_stored_order() {
        let order = Order::parse(b"[[2,0,1],[0,1,2]]", &layers()).unwrap();
        assert_eq!(order.stored(0), [2, 0, 1]);
        assert_eq!(order.positions(0), [1, 2, 0]);
        assert_eq!(order.positions(1), [0, 1, 2]);
    }

    #[test]
    fn a_refusal_names_layer_and_value() {
        for (text, words) in [
            ("[[0,1,2],[0,1,1]]", "layer 7: expert 1 stands twice"),
            ("[[0,1,3],[0,1,2]]", "layer 4: 3 is not one of its 3 experts"),
            ("[[0,-1,2],[0,1,2]]", "layer 4: -1 is not"),
            ("[[0,1,2],[0,1]]", "layer 7: expert 2 is missing"),
            ("[[0,1,2]]", "1 lists for 2 layers"),
            ("{}", "not a JSON list"),
        ] {
            let error = Order::parse(text.as_bytes(), &layers()).unwrap_err();
            assert_eq!(error.code, "bad-order");
            assert!(error.message.contains(words), "{} / {words}", error.message);
        }
    }
}

//! The summary for people.

use super::{Inspection, Records};
use std::fmt;

/// Bytes with a unit that keeps three or four digits.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.2} {unit}") }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let architecture = self.architecture.as_deref().unwrap_or("no architecture named");
        writeln!(f, "{} · {architecture} · {}", self.kind, size(self.file_bytes))?;
        if let Some(name) = &self.name {
            writeln!(f, "name        {name}")?;
        }
        if let Some(model) = &self.model {
            writeln!(
                f,
                "model       {} layers, width {}, vocabulary {}, context {}",
                model.layers, model.width, model.vocab, model.context
            )?;
            writeln!(
                f,
                "experts     {} a layer, {} a token, inner width {}",
                model.experts, model.chosen, model.expert_width
            )?;
        }
        for component in &self.components {
            let types: Vec<String> = (component.types.iter())
                .map(|share| format!("{} × {} ({})", share.tensors, share.r#type, size(share.bytes)))
                .collect();
            writeln!(f, "  {:<18} {:>11}  {}", component.component, size(component.bytes), types.join(", "))?;
        }
        if let Some(record_bytes) = self.record_bytes {
            writeln!(f, "W_e         {record_bytes} bytes ({})", size(record_bytes))?;
        }
        self.show_layers(f)?;
        for group in &self.groups {
            writeln!(
                f,
                "  G = {:<4} {:>11} a group, {} groups a layer",
                group.experts,
                size(group.bytes),
                group.groups
            )?;
        }
        for duplicate in &self.duplicates {
            writeln!(f, "twice       {} ({})", duplicate.what, size(duplicate.bytes))?;
        }
        match &self.refusal {
            Some(refusal) => writeln!(f, "cannot be packed: {refusal}"),
            None => Ok(()),
        }
    }
}

impl Inspection {
    /// Layers with equal records on one line.
    fn show_layers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = |a: &Records, b: &Records| {
            (a.record_bytes, a.experts, &a.gate, &a.up, &a.down)
                == (b.record_bytes, b.experts, &b.gate, &b.up, &b.down)
        };
        for run in self.sparse_layers.chunk_by(same) {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let reordered = run.iter().filter(|layer| layer.order.is_some()).count();
            let order = if reordered > 0 { format!(", {reordered} layers reordered") } else { String::new() };
            writeln!(
                f,
                "layers {}–{}  {} records of {} bytes (gate {}, up {}, down {}){order}",
                first.layer, last.layer, first.experts, first.record_bytes, first.gate, first.up, first.down
            )?;
        }
        Ok(())
    }
}

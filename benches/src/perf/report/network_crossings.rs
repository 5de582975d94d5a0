//! The lengths of resident data from which farjump is ahead of a fetch over modelled networks.

use std::collections::BTreeMap;

use super::key::Key;
use super::payload_size::show_size;
use super::row::{Row, show};

/// Most bytes of data with which the time of a call without the function shows: of longer data it is less than
/// two measurements differ.
pub(in crate::perf) const SHORT: usize = 64 << 10;

/// Describes, for each function and each modelled network, the length of data from which farjump is ahead of a fetch,
/// as measured and by arithmetic.
pub(super) fn crossings(rows: &[Row]) -> Vec<String> {
    let mut curves: BTreeMap<(usize, String), Vec<&Row>> = BTreeMap::new();
    let fetches =
        rows.iter().filter(|row| row.figure(Key::WireUs).is_some() && row.reference == Some("fetch"));
    let mut order: Vec<String> = Vec::new();
    for row in fetches.filter(|row| row.ratio.is_some()) {
        let [function, transport, mode] = [Key::Function, Key::Transport, Key::Mode].map(|key| row.text(key));
        let name = format!("{function}, {transport}, {mode}, wire of {}", row.shown_wire());
        let number = order.iter().position(|known| *known == name).unwrap_or_else(|| {
            order.push(name.clone());
            order.len() - 1
        });
        curves.entry((number, name)).or_default().push(row);
    }
    let said = |((_, name), rows): (&(usize, String), &Vec<&Row>)| {
        let behind = rows.iter().rposition(|row| row.ratio >= Some(1.0));
        let measured = match behind {
            None => "at every length".to_owned(),
            Some(last) => match rows.get(last + 1) {
                Some(row) => format!("from {} on", show_size(row.size() as usize)),
                None => "at no length".to_owned(),
            },
        };
        let due = match rows.first().map(|row| (row.size(), row.number(Key::AheadFrom))) {
            Some((_, Some(bytes))) => format!("from {} KiB on", show(bytes as f64 / 1024.0)),
            Some((size, None)) if size > SHORT as u64 => {
                format!("not known, as no data of {} or less were measured", show_size(SHORT))
            }
            _ => "never".to_owned(),
        };
        format!("{name}: farjump is ahead of the fetch {measured}; by arithmetic {due}")
    };
    curves.iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: usize, ratio: f64, ahead_from: Option<u64>) -> Row {
        Row { reference: Some("fetch"), ratio: Some(ratio), ..Row::default() }
            .with(Key::Function, "column")
            .with(Key::Transport, "shm")
            .with(Key::Mode, "cached")
            .with(Key::Size, size)
            .with(Key::WireUs, 1.0)
            .with(Key::AheadFrom, ahead_from)
    }

    #[test]
    fn the_crossing_is_where_farjump_is_ahead_from_then_on() {
        let said = |ratios: [f64; 3], ahead_from| {
            let sizes = [4096, 65536, 1 << 20];
            let mut rows: Vec<_> =
                sizes.into_iter().zip(ratios).map(|(size, ratio)| row(size, ratio, ahead_from)).collect();
            // Neither is about a fetch over a network.
            rows.push(Row { reference: Some("fetch"), ratio: Some(9.0), ..Row::default() });
            rows.push(Row { reference: Some("ucx-am"), ..row(4096, 9.0, None) });
            crossings(&rows).join("; ")
        };
        let name = "column, shm, cached, wire of 1 us: farjump is ahead of the fetch";
        let from = Some(12_800);
        assert_eq!(
            said([1.5, 0.9, 0.1], from),
            format!("{name} from 64K on; by arithmetic from 12.50 KiB on")
        );
        assert_eq!(
            said([0.5, 1.1, 0.1], from),
            format!("{name} from 1M on; by arithmetic from 12.50 KiB on")
        );
        assert_eq!(said([0.5, 0.9, 0.1], None), format!("{name} at every length; by arithmetic never"));
        assert_eq!(said([1.5, 1.9, 1.1], None), format!("{name} at no length; by arithmetic never"));
        let only_long = crossings(&[row(1 << 20, 0.5, None)]).join("; ");
        assert_eq!(
            only_long,
            format!(
                "{name} at every length; by arithmetic not known, as no data of 64K or less were measured"
            )
        );
        assert!(crossings(&[]).is_empty());
    }
}

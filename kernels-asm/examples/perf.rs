//! temporary
use estream_kernels_asm::model::hmx::*;
use estream_kernels_asm::model::*;
fn main() {
    for (name, rev) in [("v73", Revision::V73), ("v75", Revision::V75)] {
        let vt = Vtcm { base: 0xd800_0000, length: 1 << 20, single_page: true };
        let mut u = Unit::new(rev, vt);
        u.set_power(true);
        u.set_lock(true);
        let mut bytes = vec![0u8; 1 << 20];
        let mut x = 1u64;
        for b in bytes.chunks_exact_mut(2) {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
            let e = 10 + ((x >> 40) & 7) as u16;
            let h = ((x >> 48) as u16 & 0x83ff) | e << 10;
            b.copy_from_slice(&h.to_le_bytes());
        }
        let id: Vec<u8> = (0..64u32).flat_map(|i| (if i < 32 { 0x3c00u32 } else { 0 }).to_le_bytes()).collect();
        bytes[0x50000..0x50100].copy_from_slice(&id);
        let mut m = Range { base: 0xd800_0000, bytes: &mut bytes };
        u.load_bias(&m, 0xd805_0000).unwrap();
        let mut best = f64::MAX;
        let mut store = f64::MAX;
        for _ in 0..2000 {
                u.clear().unwrap();
            let t = std::time::Instant::now();
                u.multiply(&m, (0xd800_0000, 2048 - 1), (0xd802_0000, 2048 - 1)).unwrap();
            best = best.min(t.elapsed().as_secs_f64());
            let t = std::time::Instant::now();
                u.store(&mut m, 0xd804_0000, false, false).unwrap();
            store = store.min(t.elapsed().as_secs_f64());
        }
        println!("store {:.1}", store * 1e6);
        println!("{name}: {:.1} us a tile (of 32-tile chains with a store)", best * 1e6);
    }
}

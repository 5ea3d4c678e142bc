//! A vocabulary small enough to merge by hand.

use super::*;

const UNKNOWN: u32 = 0;

/// Ids are places in the list; byte tokens follow for all bytes but 0xff.
fn vocabulary(pieces: &[(&str, f32)], bytes: bool, unknown: Option<u32>) -> Spm {
    let mut ids: HashMap<Box<[u8]>, u32> = HashMap::new();
    let mut scores = Vec::new();
    let named = (0..0xffu8).map(|byte| (format!("<0x{byte:02X}>"), 0.0)).filter(|_| bytes);
    for (piece, score) in pieces.iter().map(|&(piece, score)| (piece.to_owned(), score)).chain(named) {
        ids.insert(piece.into_bytes().into(), scores.len() as u32);
        scores.push(score);
    }
    let count = scores.len() as u32;
    Spm::new(Tokens { ids, count }, &scores, unknown, true).expect("numbers")
}

fn encode(spm: &Spm, text: &str, first: bool) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    spm.encode(text, first, &mut Merger::default(), &mut ids).map(|()| ids)
}

const PIECES: [(&str, f32); 9] = [
    ("<unk>", 0.0),
    ("▁", -9.0),
    ("a", -8.0),
    ("b", -7.0),
    ("ab", -2.0),
    ("ba", -1.0),
    ("▁a", -3.0),
    ("aba", -4.0),
    ("▁ab", -3.0),
];

#[test]
fn the_best_score_merges_first_and_the_leftmost_of_equal_ones() {
    let spm = vocabulary(&PIECES, true, Some(UNKNOWN));
    // "ba" (−1) before "ab" (−2): a + ba. Then "▁a" (−3) before "aba" (−4), which is what is left without a space.
    assert_eq!(encode(&spm, "aba", true).expect("ids"), [6, 5]);
    assert_eq!(encode(&spm, "aba", false).expect("ids"), [7]);
    assert_eq!(encode(&spm, "ab", true).expect("ids"), [8]);
    assert_eq!(encode(&spm, "ab b", true).expect("ids"), [8, 1, 3]);
    // The "ab" in the middle comes too late.
    assert_eq!(encode(&spm, "baba", false).expect("ids"), [5, 5]);
    assert_eq!(encode(&spm, "bab", false).expect("ids"), [5, 3]);
    let even = vocabulary(&[("a", 0.0), ("aa", 1.0)], false, None);
    assert_eq!(encode(&even, "aaa", false).expect("ids"), [1, 0]);
}

#[test]
fn what_is_no_token_is_spelled_in_bytes() {
    let spm = vocabulary(&PIECES, true, Some(UNKNOWN));
    let byte = |byte: u32| PIECES.len() as u32 + byte;
    assert_eq!(encode(&spm, "aé\n", false).expect("ids"), [2, byte(0xc3), byte(0xa9), byte(0x0a)]);
    let bare = vocabulary(&PIECES, false, Some(UNKNOWN));
    assert_eq!(encode(&bare, "aé", false).expect("ids"), [2, UNKNOWN, UNKNOWN]);
    let mute = vocabulary(&PIECES, false, None);
    let error = encode(&mute, "aé", false).expect_err("nothing spells it");
    assert_eq!(error.code, "no-token");
    assert!(error.message.contains("0xc3"), "{error}");
}

#[test]
fn urgency_orders_as_scores_do() {
    let scores = [f32::INFINITY, 1e9, 1.0, f32::MIN_POSITIVE, 0.0, -1e-9, -1.0, -31999.0, f32::NEG_INFINITY];
    assert!(scores.windows(2).all(|pair| urgency(pair[0]) < urgency(pair[1])));
    assert_eq!(urgency(0.0), urgency(-0.0));
    let tokens = Tokens { ids: HashMap::new(), count: 2 };
    let error = Spm::new(tokens, &[0.0, f32::NAN], None, true).expect_err("no number");
    assert!(error.message.contains("token 1"), "{error}");
}

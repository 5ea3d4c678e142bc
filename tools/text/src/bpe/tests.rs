//! What our own files cannot show: Llama 3's whole words, and rules whose results are no tokens.

use super::*;

/// All bytes but 0xff (ids are bytes), then `more`.
fn tokens(more: &[&str]) -> Tokens {
    let bytes = (0..0xffu8).map(|byte| character_of(byte).to_string());
    let texts = bytes.chain(more.iter().map(|&text| text.to_owned()));
    let ids: HashMap<Box<[u8]>, u32> =
        (0..).zip(texts).map(|(id, text)| (text.into_bytes().into(), id)).collect();
    Tokens { count: ids.len() as u32, ids }
}

fn rules(rules: &[&str]) -> Vec<Vec<u8>> {
    rules.iter().map(|rule| rule.as_bytes().to_vec()).collect()
}

fn encode(bpe: &Bpe, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    bpe.encode(text, &mut Merger::default(), &mut ids).expect("ids");
    ids
}

#[test]
fn whole_words_are_tokens_where_the_kind_says_so() {
    let words = |pre| Bpe::new(pre, tokens(&["ab", "bc", "Ġabc"]), &rules(&["b c", "a b"])).expect("rules");
    assert_eq!(encode(&words(Pre::Llama3), " abc"), [257]);
    // No rule makes " abc": the first one leaves "bc".
    assert_eq!(encode(&words(Pre::Qwen2), " abc"), [u32::from(b' '), u32::from(b'a'), 256]);
}

#[test]
fn a_result_that_is_no_token_is_spelled() {
    let bpe = Bpe::new(Pre::Gpt2, tokens(&["é!"]), &rules(&["Ã ©", "Ã© x", "Ã© !"])).expect("rules");
    assert_eq!(encode(&bpe, "éx"), [0xc3, 0xa9, u32::from(b'x')]);
    assert_eq!(bpe.tokens, 256);
}

#[test]
fn the_first_of_equal_rules_counts_and_a_rule_has_two_sides() {
    let bpe = Bpe::new(Pre::Gpt2, tokens(&["ab", "bc"]), &rules(&["a b", "b c", "a b"])).expect("rules");
    assert_eq!(encode(&bpe, "abc"), [255, u32::from(b'c')]);
    for bad in ["ab", "a ", "", " "] {
        let error = Bpe::new(Pre::Gpt2, tokens(&[]), &rules(&["a b", bad])).expect_err(bad);
        assert_eq!(error.code, "bad-merge");
        assert!(error.message.contains("merge 1"), "{error}");
    }
}

//! Requests and what comes back for them.

use estream_host::{Output, Top};

/// A prompt and what is asked about it: results at positions, log-probabilities of given ids, rows of logits.
///
/// The result at position p is about the token after ids\[p\]: the last position is the next-token distribution, and the
/// log-probability of ids\[p + 1\] at p scores the prompt itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub(crate) ids: Vec<u32>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) rows: bool,
}

impl Request {
    /// A request that asks for nothing yet.
    #[must_use]
    pub fn new(ids: impl Into<Vec<u32>>) -> Self {
        Self { ids: ids.into(), outputs: Vec::new(), rows: false }
    }

    /// The most likely next tokens after the whole prompt.
    #[must_use]
    pub fn next_token(ids: impl Into<Vec<u32>>) -> Self {
        let request = Self::new(ids);
        let last = request.ids.len().saturating_sub(1);
        request.at(u32::try_from(last).unwrap_or(u32::MAX))
    }

    /// The log-probability of every token of the prompt after the first, given those before it.
    #[must_use]
    pub fn score(ids: impl Into<Vec<u32>>) -> Self {
        let mut request = Self::new(ids);
        let targets = request.ids.iter().skip(1);
        request.outputs =
            (0..).zip(targets).map(|(position, &id)| Output { position, target: Some(id) }).collect();
        request
    }

    /// Also the most likely tokens after position `position`.
    #[must_use]
    pub fn at(mut self, position: u32) -> Self {
        self.outputs.push(Output { position, target: None });
        self
    }

    /// Also the most likely tokens after position `position`, and the log-probability of `id` there.
    #[must_use]
    pub fn at_with_target(mut self, position: u32, id: u32) -> Self {
        self.outputs.push(Output { position, target: Some(id) });
        self
    }

    /// Also the logits of all positions, handed to the sink of [`crate::Engine::prefill_into`].
    #[must_use]
    pub fn with_rows(mut self) -> Self {
        self.rows = true;
        self
    }
}

/// The answer to one request: its outputs in the order in which they were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// One for each output.
    pub outputs: Vec<Answer>,
}

/// What follows one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The position in the prompt.
    pub position: u32,
    /// The most likely ids, best first; of equal logits the lower id.
    pub top: Vec<Top>,
    /// The natural logarithm of the target's probability, where one was given.
    pub target_logprob: Option<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_scored_by_the_tokens_that_follow() {
        let outputs = Request::score([7, 8, 9]).outputs;
        let expected = [Output { position: 0, target: Some(8) }, Output { position: 1, target: Some(9) }];
        assert_eq!(outputs, expected);
        assert!(Request::score([7]).outputs.is_empty());
        assert_eq!(Request::next_token([7, 8, 9]).outputs, [Output { position: 2, target: None }]);
    }
}

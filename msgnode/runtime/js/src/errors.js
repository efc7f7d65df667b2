/** What has a code, as an answer has, and a text that begins with what is wrong. */

export class CodedError extends Error {
  /** @param code of the answer to those who wait; @param text says what is wrong */
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** Why a stub, or a part of the runtime, could not be had. */
export class LoadError extends CodedError {
  name = "LoadError";
}

/** There is no card that proves anything: 400 no such name, 404 no card, 502 not good, 504 no answer in time. */
export class CardError extends CodedError {
  name = "CardError";
}

/** The words are no such words, or a registry refuses, lies or does not answer; its codes are those of docs/graph.md. */
export class GraphError extends CodedError {
  name = "GraphError";
}

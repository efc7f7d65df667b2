/**
 * The words are no such words, or a registry refuses, lies or does not answer.
 *
 * `code`: 400 the words or a value are not good, 404 no record, 408 no answer, 409 somebody else was faster,
 * or the record is older than one seen before, 410 revoked or timed out, 502 the registry's answer proves
 * nothing; else the registry's own.
 */
export class GraphError extends Error {
  constructor(code, text) {
    super(text);
    this.name = "GraphError";
    this.code = code;
  }
}

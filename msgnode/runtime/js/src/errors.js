/** Why a stub could not be had: an answer's code and a text that begins with what is wrong. */

export class LoadError extends Error {
  /** @param code of the answer to those who wait; @param text says what is wrong */
  constructor(code, text) {
    super(text);
    this.name = "LoadError";
    this.code = code;
  }
}

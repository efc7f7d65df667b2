/** Answers that take their time, and requests that are repeated until they are answered. */

import { domainOf } from "../addresses.js";
import { answerTo, errorBody } from "../messages.js";

const PATIENCE = 10_000; // ms after which who waits is told that it goes on
const MOST_PATIENCE = 9; // times: a bus lets ten provisional answers prolong its wait

const AGAIN_TIME = 100_000; // ms in which a request is repeated: as long as anybody waits for a decision
const TRIES = 3;

/** Thrown by a handler, or by who judges: who has asked gets this code and text. */
export class Refusal extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** Answer a request at once. */
export function answer(bus, request, body) {
  bus.postMessage(answerTo(request, body));
}

/**
 * Answer a request with what `decide()` makes: a body, or an error of which the code is told (500 if it
 * has none). Whoever waits gets 100 every 10 s meanwhile, and 408 after 100 s.
 */
export function answerInTime(bus, request, decide) {
  const { clock } = bus;
  let timer = null;
  let isDone = false;
  const done = (body) => {
    if (isDone) return;
    stop();
    answer(bus, request, body);
  };
  const stop = () => {
    isDone = true;
    if (timer !== null) clock.clearTimeout(timer);
    closing?.remove();
  };
  let closing = null;
  let result;
  try {
    result = decide();
  } catch (error) {
    result = Promise.reject(error);
  }
  const failed = (error) => {
    if (!Number.isInteger(error?.code)) bus.report("listener.failed", { error, message: request });
    done(
      errorBody(Number.isInteger(error?.code) ? error.code : 500, error?.message ?? String(error)),
    );
  };
  if (typeof result?.then !== "function") {
    done(result);
    return;
  }
  const wait = (left) => {
    timer = clock.setTimeout(() => {
      if (left === 0) done(errorBody(408, "Nobody has decided in time."));
      else {
        answer(bus, request, { code: 100 });
        wait(left - 1);
      }
    }, PATIENCE);
  };
  wait(MOST_PATIENCE);
  closing = bus.onClose?.(stop);
  result.then(done, failed);
}

/**
 * Post a request that does no harm twice, until it is answered or refused: again, under its id, when a connection
 * is back with which it, or the answer, may have been lost, and three times in all while nobody answers (408, 500).
 *
 * @param onAnswer gets provisional answers, and the final one
 */
export function askUntilAnswered(bus, message, onAnswer) {
  const until = bus.clock.now() + AGAIN_TIME;
  const domains = [bus.runtimeURL, [message.to].flat()[0]].map(domainOf);
  let id;
  let isAway = false;
  let triesLeft = TRIES;
  const post = () => {
    id = bus.postMessage({ ...message, id }, answered);
  };
  const item = bus.addListener(`${bus.runtimeURL}/status`, ({ from, body }) => {
    const { resource, value, peer } = body ?? {};
    const isStub = from === bus.runtimeURL && typeof resource === "string" && peer === undefined;
    if (!isStub || !domains.includes(domainOf(resource))) return;
    if (value === "disconnected") isAway = true;
    else if (value === "gap" || (value === "live" && isAway)) {
      isAway = false;
      if (bus.clock.now() < until) post();
    }
  });
  function answered(reply) {
    const { code } = reply.body;
    if (code >= 200) {
      triesLeft -= 1;
      if ((code === 408 || code === 500) && triesLeft > 0 && bus.clock.now() < until) {
        post();
        return;
      }
      item.remove();
    }
    onAnswer(reply);
  }
  post();
}

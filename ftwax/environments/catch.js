'use strict';
ftwax.games.catch = (() => {
  const board = ({context, colors}, facts) => {
    context.fillStyle = colors.floor;
    context.fillRect(0, 0, 2 * facts.rows, facts.rows);
    context.fillStyle = colors.back;
    context.fillRect(0, 0, edge(facts), facts.rows);
    context.fillRect(edge(facts) + facts.columns, 0, 2 * facts.rows, facts.rows);
  };
  // The board stands in the middle of a broad picture.
  const edge = (facts) => (2 * facts.rows - facts.columns) / 2;
  const ball = ({context, colors}, x, y) => {
    context.fillStyle = colors.team1;
    context.beginPath();
    context.arc(x + 0.5, y + 0.5, 0.4, 0, 7);
    context.fill();
  };
  const paddle = ({context, colors}, x, y) => {
    context.fillStyle = colors.team0;
    context.fillRect(x + 0.05, y + 0.5, 0.9, 0.45);
  };
  const size = (facts) => [2 * facts.rows, facts.rows];
  return {
    size, viewSize: size,
    draw(picture, facts, from, to, share) {
      const mix = (i) => from ? from[i] + (to[i] - from[i]) * share : to[i];
      board(picture, facts);
      ball(picture, edge(facts) + mix(0), mix(1));
      paddle(picture, edge(facts) + mix(2), facts.rows - 1);
    },
    drawView(picture, facts, view) {
      board(picture, facts);
      view.board.forEach((row, y) => row.forEach((value, x) => {
        if (!value) return;
        (y === facts.rows - 1 ? paddle : ball)(picture, edge(facts) + x, y);
      }));
    },
    status: (facts, state) => `${facts.rows - 1 - state[1]} moves left`,
    viewStatus: () => '',
    events: (facts, from, to) => to[1] < facts.rows - 1 ? []
      : [to[0] === to[2] ? 'Caught.' : 'Missed.'],
  };
})();
